package session

// Events as rows of a chain.

import "github.com/mooring-rpc/mooring/capability"

// Link is the event as a chain takes it. One whose payload was purged is judged
// by the payload's hash, which stays.
func (e *Event) Link() capability.Link {
	return capability.Link{Seq: e.Cursor, Hash: e.Hash, Spoilt: e.Payload != nil && SumOf(e.Payload) != e.Sum,
		Sum: func(prev [32]byte, seq uint64) [32]byte {
			as := *e
			as.Cursor = seq
			return Chain(prev, &as)
		}}
}
