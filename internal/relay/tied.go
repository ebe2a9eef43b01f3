package relay

// Sessions of opencode's that mooring attach records: they are not recorded a second time. A share of such a session is one more public ref of the
// session that attach has, and of its syncs only the models are put, of which attach hears nothing. While no attach runs, the syncs are put as
// those of other shares are, with the tie's file of keys and under its lock, so that the session has one writer at a time.

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"strings"

	"github.com/mooring-rpc/mooring/capability"
	"github.com/mooring-rpc/mooring/client"
	"github.com/mooring-rpc/mooring/fault"
	"github.com/mooring-rpc/mooring/internal/newfile"
	"github.com/mooring-rpc/mooring/internal/opencode"
)

// Ties are the sessions of opencode's that are tied to one of Mooring's.
type Ties interface {
	// Session returns the session in which attach records one of opencode's; nil if it is not tied.
	Session(ctx context.Context, external string) (*client.Session, error)
	// Lock lets the caller alone write to that session, until unlock; ok is false while an attach does.
	Lock(external string) (unlock func(), ok bool, err error)
	// KeysName returns the name of the file of keys that were put into that session (package putkeys).
	KeysName(external string) string
}

// tied returns the session that records one of opencode's already; nil if there is none.
func (r *Relay) tied(ctx context.Context, external string) (*client.Session, error) {
	if r.cfg.Ties == nil {
		return nil, nil
	}
	return r.cfg.Ties.Session(ctx, external)
}

// checkShare refuses a share of a tied session by a ref that may not share it, if the server can be asked.
func (r *Relay) checkShare(ctx context.Context, tied *client.Session) error {
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	d, err := tied.Describe(ctx)
	switch {
	case err == nil && d.Grant.Dead != fault.None:
		return d.Grant.Dead.With("the ref of the session that attach records in allows nothing any more")
	case err == nil && !d.Grant.Rights.Has(capability.Share):
		return fault.MissingRight.With("the ref of the session that attach records in may not share it")
	case fault.CodeOf(err).Authority():
		return err
	}
	return nil
}

// lock lets the relay write what opencode syncs of the share; ok is false while an attach records the session. The caller has the share's turn.
func (s *share) lock() (unlock func(), ok bool, err error) {
	if !s.rec.Tied {
		return func() {}, true, nil
	}
	unlock, ok, err = s.relay.cfg.Ties.Lock(s.rec.External)
	switch {
	case err != nil:
		return nil, false, fmt.Errorf("lock the tie: %w", err)
	case !ok:
		s.dropped = true
		return nil, false, nil
	}
	s.mirror.Unload() // an attach may have put something since
	if s.dropped {    // what an attach was killed over is nowhere but in opencode
		s.dropped = false
		s.relay.missedBy(s)
	}
	return unlock, true, nil
}

// put makes a piece of a sync durable. The caller has the share's turn.
func (s *share) put(ctx context.Context, piece []opencode.Put) error {
	if !s.rec.Tied {
		return s.mirror.Commit(ctx, piece)
	}
	isModel := func(p opencode.Put) bool { return strings.HasPrefix(p.Key, modelPrefix) }
	rest := slices.DeleteFunc(slices.Clone(piece), isModel)
	unlock, ok, err := s.lock()
	if ok {
		err = s.mirror.Commit(ctx, rest)
		unlock()
	}
	if err != nil {
		return err
	}
	return s.models.Apply(ctx, slices.DeleteFunc(piece, func(p opencode.Put) bool { return !isModel(p) }))
}

// modelPrefix begins the keys of models.
const modelPrefix = "model/"

// turn is the name of the share's turn: shares of one tied session have the same.
func (s *share) turn() string {
	if s.rec.Tied {
		return s.rec.External
	}
	return s.rec.ID
}

// Adopt returns the session in which a relay with the folder dir has the living share of one of opencode's, for an attach that records
// it from here on; nil if there is none. keysName is the name of the tie's file of keys, which is written. It is called while no relay uses the folder and the
// tie has no session; calling it again, as after a crash, changes nothing more.
func Adopt(ctx context.Context, c *client.Client, dir, external, keysName string) (*client.Session, error) {
	list, err := readRecords(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	list = slices.DeleteFunc(list, func(rec record) bool { return rec.External != external || rec.Ended != 0 || !rec.Made })
	if err != nil || len(list) == 0 {
		return nil, err
	}
	rec := slices.MaxFunc(list, func(a, b record) int { return cmp.Compare(a.Created, b.Created) })
	if !rec.Tied {
		keys, err := os.ReadFile(keysOf(dir, rec.ID))
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return nil, fmt.Errorf("read the keys of a share: %w", err)
		}
		if err := newfile.Fault(newfile.Replace(keysName, keys), "the ties"); err != nil {
			return nil, err
		}
		rec.Tied = true
		if err := newfile.Fault(rec.write(dir), "the relay's files"); err != nil {
			return nil, err
		}
	}
	return rec.open(ctx, c)
}
