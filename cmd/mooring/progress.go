// Progress of what may take long: a bar on a terminal, a plain line now and then
// elsewhere, nothing with --json.

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

// lineEvery is how often a plain line is written.
const lineEvery = 2 * time.Second

// newProgress begins to show how many of total are done. what names them: "ops sent".
func newProgress(sh *shared, what string, total int) *progress {
	p := &progress{what: what, total: total, last: time.Now()}
	if sh.json || total == 0 {
		return p
	}
	if f, ok := sh.err.(*os.File); ok && term.IsTerminal(int(f.Fd())) {
		p.bar = progressbar.NewOptions(total,
			progressbar.OptionSetWriter(f), progressbar.OptionSetDescription(what),
			progressbar.OptionShowCount(), progressbar.OptionThrottle(65*time.Millisecond),
			progressbar.OptionSetWidth(30), progressbar.OptionClearOnFinish())
		return p
	}
	p.plain = sh.err
	return p
}

// set says how many are done now; total may have grown.
func (p *progress) set(done, total int) {
	p.done = done
	if p.bar != nil {
		if total != p.total {
			p.bar.ChangeMax(total)
		}
		_ = p.bar.Set(done) // a terminal that cannot be written to stops nothing
	}
	p.total = total
	if p.plain != nil && time.Since(p.last) >= lineEvery {
		p.line()
	}
}

// finish ends the showing, with a last line where lines are written.
func (p *progress) finish() {
	if p.bar != nil {
		_ = p.bar.Finish()
	}
	if p.plain != nil {
		p.line()
	}
}

func (p *progress) line() {
	p.last = time.Now()
	fmt.Fprintf(p.plain, "%s: %d of %d\n", p.what, p.done, p.total)
}
