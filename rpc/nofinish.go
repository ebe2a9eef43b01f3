// Returns that need no Finish: a call whose results hold no capabilities costs two messages, not three.

package rpc

// idSetSize bounds the numbers whose Returns may need no Finish. For each smaller one a bit is kept once a Return said so,
// since a peer may send a Finish nevertheless, or have pipelined on it: so the memory is bounded, whatever numbers a peer
// chooses. Peers that reuse their numbers need no high ones.
const idSetSize = 512

// idSet is a set of numbers below idSetSize.
type idSet [idSetSize / 64]uint64

func (s *idSet) has(id uint32) bool { return id < idSetSize && s[id/64]>>(id%64)&1 != 0 }

func (s *idSet) add(id uint32) { s[id/64] |= 1 << (id % 64) }

// remove reports whether the number was in the set.
func (s *idSet) remove(id uint32) bool {
	if !s.has(id) {
		return false
	}
	s[id/64] &^= 1 << (id % 64)
	return true
}

// openAnswer finds the answer to a question that the peer may name, or nil. One that needed no Finish can be named until
// the peer sends it or reuses the number: until then it is an answer whose results hold no capabilities.
func (co *core) openAnswer(id uint32) *answer {
	if co.finishOptional.has(id) {
		return &answer{id: id, returned: true}
	}
	if ans := co.answers[id]; ans != nil && !ans.finished {
		return ans
	}
	return nil
}
