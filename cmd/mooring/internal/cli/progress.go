// Progress of long work: a bar on a terminal, a plain line at intervals elsewhere, nothing with
// --json.

package cli

import (
	"fmt"
	"io"
	"os"
	"time"

	"github.com/schollz/progressbar/v3"
	"golang.org/x/term"
)

// Progress is the display of long work, on the error output, so that results stay clean.
type Progress struct {
	bar   *progressbar.ProgressBar
	plain io.Writer
	what  string
	last  time.Time
	done  int
	total int
}

// lineEvery is the interval of plain lines.
const lineEvery = 2 * time.Second

// NewProgress begins to show how many of total are done; 0 shows nothing, a negative total is
// unknown. label is their name: "ops sent".
func NewProgress(env *Env, label string, total int) *Progress {
	p := &Progress{what: label, total: total, last: time.Now()}
	if env.JSON || total == 0 {
		return p
	}
	if f, ok := env.Err.(*os.File); ok && term.IsTerminal(int(f.Fd())) {
		p.bar = progressbar.NewOptions(total,
			progressbar.OptionSetWriter(f), progressbar.OptionSetDescription(label),
			progressbar.OptionShowCount(), progressbar.OptionThrottle(65*time.Millisecond),
			progressbar.OptionSetWidth(30), progressbar.OptionClearOnFinish(), progressbar.OptionSetRenderBlankState(true))
		return p
	}
	p.plain = env.Err
	return p
}

// Set sets how many are done; total may have grown.
func (p *Progress) Set(done, total int) {
	p.done = done
	if p.bar != nil {
		if total != p.total {
			p.bar.ChangeMax(total)
		}
		_ = p.bar.Set(done) // an error of the terminal is ignored
	}
	p.total = total
	if p.plain != nil && time.Since(p.last) >= lineEvery {
		p.line()
	}
}

// Finish ends the display, with a last plain line if lines are written.
func (p *Progress) Finish() {
	if p.bar != nil {
		_ = p.bar.Finish()
		p.bar = nil
	}
	if p.plain != nil {
		p.line()
	}
}

// FinishBar is Finish for work of which a line is worth writing only if it takes long: it ends a bar, and writes no last
// line. A nil p shows nothing.
func (p *Progress) FinishBar() {
	if p != nil && p.bar != nil {
		p.Finish()
	}
}

// Clear ends the display unless Finish has: for work that failed, or whose end is not worth a
// line.
func (p *Progress) Clear() {
	if p.bar != nil {
		_ = p.bar.Clear()
		_ = p.bar.Exit()
		p.bar = nil
	}
}

func (p *Progress) line() {
	p.last = time.Now()
	if p.total < 0 {
		fmt.Fprintf(p.plain, "%s: %d\n", p.what, p.done)
		return
	}
	fmt.Fprintf(p.plain, "%s: %d of %d\n", p.what, p.done, p.total)
}

// ReadProgress shows how much of an input was read.
type ReadProgress struct {
	io.Reader
	bar   *Progress
	n     int
	total int // -1: unknown
}

// NewReadProgress begins to show reads of in, whose size is known if it is a file.
func NewReadProgress(env *Env, in io.Reader, size int) *ReadProgress {
	return &ReadProgress{Reader: in, bar: NewProgress(env, "bytes read", size), total: size}
}

// Clear ends the display.
func (r *ReadProgress) Clear() { r.bar.Clear() }

// Read implements io.Reader.
func (r *ReadProgress) Read(p []byte) (int, error) {
	n, err := r.Reader.Read(p)
	r.n += n
	r.bar.Set(r.n, r.total)
	return n, err
}
