package session

// Forks that are copied in pieces, as the rows of their sessions have them.

import (
	"fmt"
	"slices"

	"github.com/mooring-rpc/mooring/fault"
)

// Forking is a fork that is being copied. It does not change.
type Forking struct {
	Source  string  `json:"source"`
	Via     string  `json:"via"`   // the ref that the source is read through
	Space   string  `json:"space"` // the space's ref under which the session is made
	Ref     string  `json:"ref"`   // of the session's owner
	Stream  string  `json:"stream"`
	At      uint64  `json:"at"`              // of the source
	Named   uint64  `json:"named,omitempty"` // At, if the op names it
	Order   Order   `json:"order,omitempty"`
	Message string  `json:"message,omitempty"` // id of the last message to copy; "" for all
	Place   Ord     `json:"place"`             // of that message
	Reverts Reverts `json:"reverts,omitempty"` // what was hidden in the source

	Compaction Compaction `json:"compaction"` // of the source
	LeftOut    bool       `json:"left_out,omitempty"`
	Summary    bool       `json:"summary,omitempty"` // copied: some of what that leaves out, and its summary

	Fold *ForkFold `json:"fold,omitempty"` // of one as of an earlier cursor

	State ForkState `json:"state"`
	After string    `json:"after,omitempty"` // the last key that was looked at in that state
	Keys  int64     `json:"keys"`
	Bytes int64     `json:"bytes"`
	Total int64     `json:"total"` // the source's Bytes: Bytes is at most about that
	Needs Features  `json:"needs,omitempty"`
	Asked int64     `json:"asked"` // when it was asked for last, about, Unix ms

	Code   fault.Code `json:"code,omitempty"` // of one that has failed
	Reason string     `json:"reason,omitempty"`
}

// ForkState is a stage of copying.
type ForkState uint8

// The stages, in order; any but the last may be followed by ForkFailed.
const (
	ForkFolds   ForkState = iota // the source's log makes the entries of then
	ForkCopies                   // entries that have not changed since then
	ForkMends                    // the others, as they were then
	ForkTidies                   // these are removed from where they were kept
	ForkReady                    // the session can be made
	ForkFailed                   // what was copied is removed
	ForkDropped                  // it has been
)

// Copies are the forks that are being copied of a session. It does not change.
type Copies struct{ Forks []Copied }

// Copied is a fork that is being copied.
type Copied struct {
	Session string `json:"session"`
	At      uint64 `json:"at"` // entries from up to then are kept before they are changed
	Whole   bool   `json:"whole,omitempty"`
}

// ForkPatience is how long a fork is kept that nobody asks for, in ms.
const ForkPatience = 7 * 24 * 3600 * 1000

// ForkRequest asks for a fork in pieces. Its op was answered NotYetKnown.
type ForkRequest struct {
	Session, Source, Via, Space, Ref, Stream, Message string

	At     uint64 // 0: it names none
	AtHash []byte // that the event there must have; nil: any
}

// ForkWork names a fork that is being copied.
type ForkWork struct{ Session, Source string }

// ForkDue is a fork for which there is something to do, and how far it is.
type ForkDue struct {
	ForkWork
	Space string // the space's ref to whose account it counts
	Bytes int64  // that are copied
	State ForkState
}

// By reports whether f is what r asks for.
func (f *Forking) By(r *ForkRequest) bool {
	return f.Source == r.Source && f.Via == r.Via && f.Ref == r.Ref && f.Stream == r.Stream && f.Message == r.Message && f.Named == r.At
}

// ForkWaits begins the message of an answer to a fork that is being copied (fault.Error.Copying), as outboxes keep it.
const ForkWaits = "the fork is "

// IsDue reports whether there is something to do for the fork, now or later.
func (f *Forking) IsDue() bool { return f != nil && f.State != ForkDropped }

// Due returns what there is to do for the fork, which becomes the session id.
func (f *Forking) Due(id string) ForkDue {
	return ForkDue{ForkWork{id, f.Source}, f.Space, f.Bytes, f.State}
}

// Without returns the list without a fork; nil if it was the last.
func (c *Copies) Without(id string) *Copies {
	if c == nil {
		return nil
	}
	left := slices.DeleteFunc(slices.Clone(c.Forks), func(f Copied) bool { return f.Session == id })
	if len(left) == 0 {
		return nil
	}
	return &Copies{left}
}

// Has reports whether a fork is in the list.
func (c *Copies) Has(id string) bool {
	return c != nil && slices.ContainsFunc(c.Forks, func(f Copied) bool { return f.Session == id })
}

// Whole returns the list with a fork for which nothing more has to be kept.
func (c *Copies) Whole(id string) *Copies {
	list := slices.Clone(c.Forks)
	for i := range list {
		list[i].Whole = list[i].Whole || list[i].Session == id
	}
	return &Copies{list}
}

// List returns the forks; none of nil.
func (c *Copies) List() []Copied {
	if c == nil {
		return nil
	}
	return c.Forks
}

// Progress says how much is copied, for people.
func (f *Forking) Progress() string {
	if f.State == ForkFolds {
		return fmt.Sprintf("%d of %d events are read", f.Fold.Cursor, f.At)
	}
	return fmt.Sprintf("%d of at most %d MiB", f.Bytes>>20, max(f.Total>>20, 1))
}

// ForkFold is what a fork's entries were folded from, and the part of a Fold that is in none of them. It does not change.
type ForkFold struct {
	Cursor     uint64     `json:"cursor"` // of the last event that is folded
	Revert     Revert     `json:"revert,omitzero"`
	Compaction Compaction `json:"compaction,omitzero"`
	Hash       []byte     `json:"hash,omitempty"` // that the event at the fork's cursor must have; nil: any
}
