package capability

// ChainVerifier: finding the flaws of a hash chain, row by row. It serves the audit and, since it
// knows rows only by their hashes, any other log with the same kind of chain.

import (
	"fmt"
	"slices"
)

// ChainRow is a row of a chain as it was read.
type ChainRow struct {
	Seq  uint64
	Hash [32]byte
	// Sum returns the hash that the row would have as row seq after a row with hash prev.
	Sum func(prev [32]byte, seq uint64) [32]byte
	// Corrupt reports that the row's payload does not match its own fields.
	Corrupt bool
}

// ChainVerifier takes a chain's rows in the order of their numbers, and reports at the end the rows
// that were changed, are missing or are in the wrong position. A changed row is recognized by the
// rows after it, which are unchanged. It retains only flawed rows.
type ChainVerifier struct {
	seq      uint64
	prev     [32]byte
	known    bool // prev is the hash of the previous row
	flaws    []Flaw
	suspects []suspect
	gaps     []uint64 // some of the missing rows
}

// suspect is a row whose hash does not follow from the row before it.
type suspect struct {
	ChainRow
	prev     [32]byte
	unproven bool // the row before it is missing: it may be intact
}

// maxSuspects is how many rows are tried in other positions: each is tried in the position of each.
const maxSuspects = 32

// NewChainVerifier returns a verifier for a chain whose first row is the one after seq. If seq is
// not 0, the log before it is gone, and the link of its first row is not checked.
func NewChainVerifier(seq uint64) *ChainVerifier { return &ChainVerifier{seq: seq, known: seq == 0} }

// NewChainVerifierFrom returns a verifier for a chain that continues from the row seq, whose hash
// is prev.
func NewChainVerifierFrom(seq uint64, prev [32]byte) *ChainVerifier {
	return &ChainVerifier{seq: seq, prev: prev, known: true}
}

// FlawKind is the kind of a flaw.
type FlawKind string

// The kinds of flaws.
const (
	RowChanged   FlawKind = "changed"   // the row is not the one that was written
	RowMissing   FlawKind = "missing"   // the row, and all up to Through
	RowMisplaced FlawKind = "misplaced" // the row was written as row WrittenAs
	RowAfterEnd  FlawKind = "beyond"    // it is after the log's recorded last row, WrittenAs
	EndChanged   FlawKind = "end"       // the log's recorded last hash is not that of row Seq
)

// Flaw is a flaw of a chain.
type Flaw struct {
	Kind      FlawKind
	Seq       uint64
	Through   uint64
	WrittenAs uint64 // 0 if unknown
}

// Text describes the flaw; of is the word for a row.
func (f Flaw) Text(of string) string {
	switch f.Kind {
	case RowMissing:
		if f.Through > f.Seq {
			return fmt.Sprintf("%ss %d to %d are missing", of, f.Seq, f.Through)
		}
		return fmt.Sprintf("%s %d is missing", of, f.Seq)
	case RowMisplaced:
		if f.WrittenAs == 0 {
			return fmt.Sprintf("%s %d is out of order", of, f.Seq)
		}
		return fmt.Sprintf("%s %d is out of order: what stands there was written as %d", of, f.Seq, f.WrittenAs)
	case RowAfterEnd:
		return fmt.Sprintf("%s %d is beyond the end, which is %d", of, f.Seq, f.WrittenAs)
	case EndChanged:
		return fmt.Sprintf("the end was changed: it is not the hash of %s %d", of, f.Seq)
	}
	return fmt.Sprintf("%s %d was changed after it was written", of, f.Seq)
}

// Seq returns the number of the last row, or of the one before the first.
func (c *ChainVerifier) Seq() uint64 { return c.seq }

// Head returns the last row's hash, as it was read.
func (c *ChainVerifier) Head() [32]byte { return c.prev }

// Add adds the next row.
func (c *ChainVerifier) Add(l ChainRow) {
	if l.Seq <= c.seq {
		c.flaws = append(c.flaws, Flaw{Kind: RowMisplaced, Seq: l.Seq})
		return
	}
	if l.Seq > c.seq+1 {
		c.missing(c.seq+1, l.Seq-1)
		c.known = false
	}
	switch {
	case l.Corrupt:
		c.flaws = append(c.flaws, Flaw{Kind: RowChanged, Seq: l.Seq})
	case !c.known || l.Sum(c.prev, l.Seq) != l.Hash:
		if len(c.suspects) < maxSuspects {
			c.suspects = append(c.suspects, suspect{l, c.prev, !c.known})
		} else if c.known {
			c.flaws = append(c.flaws, Flaw{Kind: RowChanged, Seq: l.Seq})
		}
	}
	c.seq, c.prev, c.known = l.Seq, l.Hash, true
}

func (c *ChainVerifier) missing(from, through uint64) {
	c.flaws = append(c.flaws, Flaw{Kind: RowMissing, Seq: from, Through: through})
	for seq := from; seq <= through && len(c.gaps) < maxSuspects; seq++ {
		c.gaps = append(c.gaps, seq)
	}
}

// End returns the flaws of a chain whose log records that it ends with the row seq and its hash
// head. It may be called again.
func (c *ChainVerifier) End(seq uint64, head [32]byte) []Flaw {
	d := *c
	d.flaws, d.gaps = slices.Clip(c.flaws), slices.Clip(c.gaps)
	if d.seq < seq {
		d.missing(d.seq+1, seq)
	}
	for _, s := range d.suspects {
		if f, wrong := d.diagnose(s); wrong {
			d.flaws = append(d.flaws, f)
		}
	}
	switch {
	case d.seq > seq:
		d.flaws = append(d.flaws, Flaw{Kind: RowAfterEnd, Seq: d.seq, WrittenAs: seq})
	case d.seq == seq && d.known && d.prev != head && !d.flawed(seq):
		d.flaws = append(d.flaws, Flaw{Kind: EndChanged, Seq: seq})
	}
	return d.flaws
}

func (c *ChainVerifier) flawed(seq uint64) bool {
	return slices.ContainsFunc(c.flaws, func(f Flaw) bool { return f.Seq == seq })
}

// diagnose tries a suspect in its own position and in the positions of all others, after every hash
// that any of them may follow. It belongs where its hash fits, or the hash of the row that was left
// there.
func (c *ChainVerifier) diagnose(s suspect) (f Flaw, wrong bool) {
	before := [][32]byte{{}}
	for _, o := range c.suspects {
		before = append(before, o.prev, o.Hash, o.Sum(o.prev, o.Seq))
	}
	for _, prev := range before {
		if s.Sum(prev, s.Seq) == s.Hash {
			return f, false // the flawed row is the one before it
		}
	}
	try := func(seq uint64, left [32]byte) bool {
		return slices.ContainsFunc(before, func(prev [32]byte) bool {
			sum := s.Sum(prev, seq)
			return sum == s.Hash || sum == left && !s.unproven
		})
	}
	for _, o := range c.suspects {
		if o.Seq != s.Seq && try(o.Seq, o.Hash) {
			return Flaw{Kind: RowMisplaced, Seq: s.Seq, WrittenAs: o.Seq}, true
		}
	}
	for _, seq := range c.gaps {
		if try(seq, s.Hash) {
			return Flaw{Kind: RowMisplaced, Seq: s.Seq, WrittenAs: seq}, true
		}
	}
	return Flaw{Kind: RowChanged, Seq: s.Seq}, !s.unproven
}

// ChainRow returns the row as a row of a chain.
func (r *AuditRow) ChainRow() ChainRow {
	return ChainRow{Seq: r.Seq, Hash: r.Hash, Sum: func(prev [32]byte, seq uint64) [32]byte {
		as := *r
		as.Seq = seq
		return HashAuditRow(prev, &as)
	}}
}
