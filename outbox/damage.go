package outbox

// The damage that this process has found: rows that cannot be read, and a damaged file. Waiters
// get it as an error, since they would wait for ever.

import (
	"context"
	"errors"
	"strings"
	"sync"

	"github.com/mooring-rpc/mooring/fault"
	"github.com/mooring-rpc/mooring/outbox/internal/sqlstore"
)

// damageLog records the damage found by this process. Its methods may be called concurrently.
type damageLog struct {
	mu      sync.Mutex
	file    error    // the last error that found the file damaged; nil once a transaction has succeeded
	rows    int      // quarantined rows
	batches []string // the first few of their batches
}

// observe records the result of a transaction or a read.
func (d *damageLog) observe(err error) {
	damaged := errors.Is(err, sqlstore.ErrFileDamaged)
	if err != nil && !damaged || errors.Is(err, context.Canceled) {
		return
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.file = err
}

// noteQuarantined records a batch whose row was quarantined.
func (d *damageLog) noteQuarantined(batch string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.rows++; len(d.batches) < maxNamedBatches {
		d.batches = append(d.batches, batch)
	}
}

// fileErr is the error that found the file damaged; nil if the file is usable.
func (d *damageLog) fileErr() error {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.file
}

// maxNamedBatches is how many damaged batches an error names.
const maxNamedBatches = 10

// rowsErr is OutboxDamaged with the quarantined batches; nil if there are none.
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
