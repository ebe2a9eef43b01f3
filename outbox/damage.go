package outbox

// Damage that was met: rows that cannot be read, and a file that is not what was
// written. What waits is told of it, where it would wait for ever in silence.

import (
	"context"
	"errors"
	"strings"
	"sync"

	"github.com/mooring-rpc/mooring/fault"
)

// damageLog is what this process has met. Its methods may be called concurrently.
type damageLog struct {
	mu      sync.Mutex
	file    error    // what last found the file damaged; nil once a transaction has succeeded
	rows    int      // that were set aside
	batches []string // of these, the first few
}

// observe notes what a transaction or a look came to.
func (d *damageLog) observe(err error) {
	damaged := errors.Is(err, errFileDamaged)
	if err != nil && !damaged || errors.Is(err, context.Canceled) {
		return
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.file = err
}

// noteQuarantined notes a batch whose row was set aside.
func (d *damageLog) noteQuarantined(batch string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.rows++; len(d.batches) < maxNamedBatches {
		d.batches = append(d.batches, batch)
	}
}

// fileErr is why the file takes and gives nothing; nil if it does.
func (d *damageLog) fileErr() error {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.file
}

// maxNamedBatches is how many damaged batches an error names.
const maxNamedBatches = 10

// rowsErr is OutboxDamaged with the batches whose rows were set aside; nil if there are
// none.
func (d *damageLog) rowsErr() error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.rows == 0 {
		return nil
	}
	more := ""
	if d.rows > len(d.batches) {
		more = " …"
	}
	return fault.OutboxDamaged.With("%d damaged batches were set aside and not sent: %s%s. Their ops are lost here: commit them anew if you have them", d.rows, strings.Join(d.batches, ", "), more)
}
