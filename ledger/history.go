// History: a stream's records, by seq and by op.

package ledger

import "sort"

// History holds the unpruned records of one stream: the records its caller has read under lock,
// and the ones decided since in the same transaction. It may hold only part of a stream, as
// long as it has every record that is asked for. It is not safe for concurrent use.
type History struct {
	records []*Record // by FirstSeq
	byOp    map[string]*Outcome
}

// NewHistory returns a History of a stream's records, in any order; they are not copied and
// must not change afterwards.
func NewHistory(records []*Record) *History {
	h := &History{records: append([]*Record(nil), records...)}
	sort.Slice(h.records, func(i, j int) bool { return h.records[i].FirstSeq < h.records[j].FirstSeq })
	return h
}

// Record returns the record that holds seq, nil if there is none. Its method value is the at
// function of Admit and AckThrough.
func (h *History) Record(seq uint64) *Record {
	i := sort.Search(len(h.records), func(i int) bool { return h.records[i].FirstSeq > seq })
	if i == 0 || h.records[i-1].LastSeq() < seq {
		return nil
	}
	return h.records[i-1]
}

// Outcome returns the outcome of an op. Its method value is Decide's lookup.
func (h *History) Outcome(opID string) (*Outcome, bool) {
	if h.byOp == nil {
		h.byOp = make(map[string]*Outcome)
		for _, r := range h.records {
			h.index(r)
		}
	}
	o, ok := h.byOp[opID]
	return o, ok
}

// Add adds the record of a batch decided just now, or one read later. A record that is there
// already is left alone.
func (h *History) Add(r *Record) {
	i := sort.Search(len(h.records), func(i int) bool { return h.records[i].FirstSeq >= r.FirstSeq })
	if i < len(h.records) && h.records[i].FirstSeq == r.FirstSeq {
		return
	}
	h.records = append(h.records, nil)
	copy(h.records[i+1:], h.records[i:])
	h.records[i] = r
	if h.byOp != nil {
		h.index(r)
	}
}

// Prune removes the records whose last seq is at or below through: the same ones that the store
// deletes. A record that reaches beyond it stays whole.
func (h *History) Prune(through uint64) {
	kept := h.records[:0]
	for _, r := range h.records {
		if r.LastSeq() > through {
			kept = append(kept, r)
			continue
		}
		if h.byOp != nil {
			for i := range r.Outcomes {
				delete(h.byOp, r.Outcomes[i].OpID)
			}
		}
	}
	clear(h.records[len(kept):])
	h.records = kept
}

func (h *History) index(r *Record) {
	for i := range r.Outcomes {
		h.byOp[r.Outcomes[i].OpID] = &r.Outcomes[i]
	}
}
