// Progress of long work: a bar on a terminal, a plain line at intervals elsewhere, nothing with
// --json.

package main

import (
	"fmt"
	"io"
	"os"
	"time"

	"github.com/schollz/progressbar/v3"
	"golang.org/x/term"
)

// progress is shown on the error output, so that results stay clean.
type progress struct {
	bar   *progressbar.ProgressBar
	plain io.Writer
	what  string
	last  time.Time
	done  int
	total int
}

// lineEvery is the interval of plain lines.
const lineEvery = 2 * time.Second

// newProgress begins to show how many of total are done; 0 shows nothing, a negative total is
// unknown. what is their name: "ops sent".
func newProgress(sh *cliEnv, label string, total int) *progress {
	p := &progress{what: label, total: total, last: time.Now()}
	if sh.json || total == 0 {
		return p
	}
	if f, ok := sh.err.(*os.File); ok && term.IsTerminal(int(f.Fd())) {
		p.bar = progressbar.NewOptions(total,
			progressbar.OptionSetWriter(f), progressbar.OptionSetDescription(label),
			progressbar.OptionShowCount(), progressbar.OptionThrottle(65*time.Millisecond),
			progressbar.OptionSetWidth(30), progressbar.OptionClearOnFinish(), progressbar.OptionSetRenderBlankState(true))
		return p
	}
	p.plain = sh.err
	return p
}

// set sets how many are done; total may have grown.
func (p *progress) set(done, total int) {
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

// finish ends the display, with a last plain line if lines are written.
func (p *progress) finish() {
	if p.bar != nil {
		_ = p.bar.Finish()
		p.bar = nil
	}
	if p.plain != nil {
		p.line()
	}
}

// finishBar is finish for work of which a line is worth writing only if it takes long: it ends a bar, and writes no last
// line. A nil p shows nothing.
func (p *progress) finishBar() {
	if p != nil && p.bar != nil {
		p.finish()
	}
}

// clear ends the display unless finish has: for work that failed, or whose end is not worth a
// line.
func (p *progress) clear() {
	if p.bar != nil {
		_ = p.bar.Clear()
		_ = p.bar.Exit()
		p.bar = nil
	}
}

func (p *progress) line() {
	p.last = time.Now()
	if p.total < 0 {
		fmt.Fprintf(p.plain, "%s: %d\n", p.what, p.done)
		return
	}
	fmt.Fprintf(p.plain, "%s: %d of %d\n", p.what, p.done, p.total)
}

// readProgress shows how much of an input was read.
type readProgress struct {
	io.Reader
	bar   *progress
	n     int
	total int // -1: unknown
}

// newReadProgress begins to show reads of in, whose size is known if it is a file.
func newReadProgress(sh *cliEnv, in io.Reader, size int) *readProgress {
	return &readProgress{Reader: in, bar: newProgress(sh, "bytes read", size), total: size}
}

// clear ends the display.
func (r *readProgress) clear() { r.bar.clear() }

// Read implements io.Reader.
func (r *readProgress) Read(p []byte) (int, error) {
	n, err := r.Reader.Read(p)
	r.n += n
	r.bar.set(r.n, r.total)
	return n, err
}
