package view

// Large values that are edited: the database keeps such a value as it was once, its base, and beside
// it the changes since then, as the pieces of the base and of new text that make the value (package
// pieces). So an edit writes about what it changes and not the value, wherever the log ends. Where the
// changes become many, the value is written whole and is the next base.

import (
	"github.com/mooring-rpc/mooring/fault"
	"github.com/mooring-rpc/mooring/internal/pieces"
	"github.com/mooring-rpc/mooring/internal/session"
)

// minEdited is the length, in bytes, up to which a value is written whole with each edit.
const minEdited = 4 << 10

// maxEdits is the maximum length of the changes of a value of n bytes: each edit writes all of them.
// With 100 KB, edits of 100 bytes far from each other make up for it some fifty times.
func maxEdits(n int) int { return 4<<10 + n/64 }

// StoreEdit decides how e is stored, which an edit has made of old: made says of which pieces. slot is
// the key's state before it.
func StoreEdit(slot *EntryState, e, old *session.Entry, made pieces.List) (WriteMode, *fault.Error) {
	if len(e.Payload) <= minEdited {
		return WriteWhole, nil
	}
	e.Edited = uint64(len(e.Payload))
	// Only a base that is in its row already can stay there.
	if old.Edited == 0 || made == nil || slot.write != writeNone && slot.write != writeEdits {
		return WriteWhole, nil
	}
	base := pieces.Whole(len(old.Payload))
	if old.Edits != nil {
		var err error
		if base, err = pieces.Unmarshal(old.Edits); err != nil {
			return 0, fault.Internal.Because(err, "the changes of %s cannot be read: %v", e.Key, err)
		}
	}
	edits := made.On(base).Marshal()
	if len(edits) > maxEdits(len(e.Payload)) {
		return WriteWhole, nil
	}
	e.Edits = edits
	return writeEdits, nil
}
