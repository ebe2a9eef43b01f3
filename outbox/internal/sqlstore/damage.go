package sqlstore

// The damage that this process has found: rows that cannot be read, and a damaged file. Waiters
// get it as an error, since they would wait for ever.

import (
	"context"
	"errors"
	"strings"
	"sync"

	"github.com/mooring-rpc/mooring/fault"
)

// DamageLog records the damage found by this process. Its methods may be called concurrently.
type DamageLog struct {
	mu      sync.Mutex
	file    error    // the last error that found the file damaged; nil once a transaction has succeeded
	rows    int      // quarantined rows
	batches []string // the first few of their batches
}

// Observe records the result of a transaction or a read.
func (d *DamageLog) Observe(err error) {
	damaged := errors.Is(err, ErrFileDamaged)
	if err != nil && !damaged || errors.Is(err, context.Canceled) {
		return
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.file = err
}

// NoteQuarantined records a batch whose row was quarantined.
func (d *DamageLog) NoteQuarantined(batch string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.rows++; len(d.batches) < maxNamedBatches {
		d.batches = append(d.batches, batch)
	}
}

// FileErr is the error that found the file damaged; nil if the file is usable.
func (d *DamageLog) FileErr() error {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.file
}

// maxNamedBatches is how many damaged batches an error names.
const maxNamedBatches = 10

// RowsErr is OutboxDamaged with the quarantined batches; nil if there are none.
func (d *DamageLog) RowsErr() error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.rows == 0 {
		return nil
	}
	more := ""
	if d.rows > len(d.batches) {
		more = " …"
	}
	return fault.OutboxDamaged.With("%d damaged batches were set aside and not sent: %s%s. Their ops are lost here: commit them again if you have them", d.rows, strings.Join(d.batches, ", "), more)
}
