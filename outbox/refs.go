package outbox

// The sturdy refs that the outbox sends through: the only place where secrets
// are kept.

import (
	"context"
	"encoding/json"
	"fmt"
	"hash/maphash"
	"slices"
	"sync"
	"time"

	"github.com/oklog/ulid/v2"

	"github.com/mooring-rpc/mooring/capability"
	"github.com/mooring-rpc/mooring/fault"
)

// refCache is what this process has read of the refs.
type refCache struct {
	mu      sync.Mutex
	known   bool
	changes uint64 // counts what may have made a reading under way old
	// by has the refs an id, a session, a space or an external id stands for,
	// oldest first; "" has those of spaces.
	by map[string][]SavedRef
}

const (
	sqlRefs = `SELECT id, ref, role, external, label, redemption, saved_at FROM mooring_outbox_ref WHERE box = $1 ORDER BY saved_at, id`
	// What is remembered of a ref may change; its redemption id never does.
	sqlPutRef = `INSERT INTO mooring_outbox_ref (box, id, target, ref, role, external, label, redemption, saved_at)
		VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9)
		ON CONFLICT (box, id) DO UPDATE SET ref = excluded.ref, role = excluded.role, external = excluded.external, label = excluded.label
			WHERE mooring_outbox_ref.role NOT IN ('` + string(rotated) + `', '` + string(rotating) + `')
		RETURNING redemption, saved_at`
	sqlDropRef = `DELETE FROM mooring_outbox_ref WHERE box = $1 AND id = $2`
	// Those whose place it has taken have its secret too.
	sqlDropFormer = `DELETE FROM mooring_outbox_ref WHERE box = $1 AND role = $2 AND label = $3`
)

// PutRef stores a ref to send through, or changes what is remembered of it. A
// stream that stood still for want of it, or because another was refused, goes
// on, whoever sends. One whose place another has taken (FinishRotation) stays
// what it is. BadRefText for a ref without target or secret.
func (b *Box) PutRef(ctx context.Context, ref capability.Ref, meta RefMeta) error {
	leave, err := b.enter()
	if err != nil {
		return err
	}
	defer leave()
	switch {
	case ref.Target() == "" || ref.Secret.IsZero():
		return fault.BadRefText.With("put ref: an address alone, or a ref without a secret, cannot be sent through")
	case meta.Role == "" && capability.IsSpace(ref.Target()):
		meta.Role = SpaceOwner
	case meta.Role == "":
		meta.Role = Shared
	}
	at := b.cfg.Now().UnixMilli()
	redemption := ulid.Make().String()
	saved := SavedRef{Ref: ref, RefMeta: meta}
	var savedAt int64
	err = b.w.do(ctx, func(ctx context.Context, q querier) error {
		b.t.changed(q, b.id, oneRef)
		return q.query(ctx, sqlPutRef, []any{b.t.box, ref.ID, ref.Target(), ref.Text(), string(meta.Role), meta.External, meta.Label, redemption, at},
			func(scan scanner) error { return scan(&saved.Redemption, &savedAt) })
	})
	if err != nil {
		return fmt.Errorf("put ref: %w", err)
	}
	saved.Saved = time.UnixMilli(savedAt)
	if saved.Redemption == "" { // another has its place
		b.refs.forget()
	} else {
		b.refs.put(saved)
	}
	b.callerRefs.forget()
	b.refStored(ref.Target())
	return nil
}

// DropRef forgets a ref; no error if it is not there. InUse if another is about to
// take its place, which may be the only one a server knows: AbandonRotation gives
// that up.
func (b *Box) DropRef(ctx context.Context, id string) error {
	leave, err := b.enter()
	if err != nil {
		return err
	}
	defer leave()
	err = b.w.do(ctx, func(ctx context.Context, q querier) error {
		pending, err := b.t.rotating(ctx, q, id)
		if err != nil {
			return err
		}
		if pending != nil {
			return fault.InUse.With("ref %s is being rotated: another is about to take its place", clip(id))
		}
		if _, err := q.exec(ctx, sqlDropFormer, b.t.box, string(rotated), id); err != nil {
			return err
		}
		_, err = q.exec(ctx, sqlDropRef, b.t.box, id)
		return err
	})
	b.refs.forget()
	b.callerRefs.forget()
	if err != nil {
		return fmt.Errorf("drop ref: %w", err)
	}
	return nil
}

// Refs lists the stored refs, oldest first.
func (b *Box) Refs(ctx context.Context) ([]SavedRef, error) { return b.shelf().read(ctx) }

// shelf is where refs are looked up: in what is known of them, and in the
// database if that does not know.
type shelf struct {
	box   *Box
	known *refCache
	// q is the transaction that asks. It may hold the last connection there is,
	// and see what others do not: so it has a cache of its own. nil: a snapshot.
	q querier
}

func (b *Box) shelf() shelf                  { return shelf{box: b, known: &b.refs} }
func (b *Box) shelfOf(q querier) shelf       { return shelf{b, new(refCache), q} }
func (b *Box) shelfOfCaller(q querier) shelf { return shelf{b, &b.callerRefs, q} }

// read lists the stored refs, and keeps them in mind.
func (s shelf) read(ctx context.Context) (refs []SavedRef, err error) {
	before := s.known.now()
	read := func(ctx context.Context, q querier) (err error) {
		refs, err = s.box.t.refs(ctx, q)
		return err
	}
	if s.q != nil {
		err = read(ctx, s.q)
	} else {
		err = s.box.read(ctx, "read refs", read)
	}
	if err == nil {
		s.known.set(refs, before)
	}
	return refs, err
}

func (t *tables) refs(ctx context.Context, q querier) (refs []SavedRef, err error) {
	was, next := map[string][]string{}, map[string]*capability.Ref{}
	err = q.query(ctx, sqlRefs, []any{t.box}, func(scan scanner) error {
		var r SavedRef
		var id, text, role string
		var saved int64
		if err := scan(&id, &text, &role, &r.External, &r.Label, &r.Redemption, &saved); err != nil {
			return err
		}
		var err error
		if r.Ref, err = capability.ParseRef(text); err != nil {
			return fault.Internal.Because(err, "a stored ref is damaged")
		}
		r.Role, r.Saved = Role(role), time.UnixMilli(saved)
		switch r.Role {
		case rotated:
			was[r.Label] = append(was[r.Label], id)
		case rotating:
			next[r.Label] = &r.Ref
		default:
			refs = append(refs, r)
		}
		return nil
	})
	for i := range refs {
		refs[i].was, refs[i].next = was[refs[i].ID], next[refs[i].ID]
	}
	return refs, err
}

// Ref gives a stored ref by its id, or the one that has taken its place since;
// NotFound.
func (b *Box) Ref(ctx context.Context, id string) (SavedRef, error) { return b.shelf().ref(ctx, id) }

func (s shelf) ref(ctx context.Context, id string) (SavedRef, error) {
	return s.pick(ctx, id, func(fits []SavedRef) (SavedRef, error) {
		for _, r := range fits {
			if r.ID == id || slices.Contains(r.was, id) {
				return r, nil
			}
		}
		return SavedRef{}, fault.NotFound.With("ref %s is not stored here", clip(id))
	})
}

// RefFor gives the ref for a session or space id, or an external id: the owner's
// if there is one, else the newest. "" stands for the one space there is a ref
// to. NotFound, Ambiguous.
func (b *Box) RefFor(ctx context.Context, target string) (SavedRef, error) {
	return b.shelf().refFor(ctx, target)
}

func (s shelf) refFor(ctx context.Context, target string) (SavedRef, error) {
	return s.pick(ctx, target, func(fits []SavedRef) (SavedRef, error) {
		best := SavedRef{}
		for _, r := range fits {
			switch {
			case r.ID == target, slices.Contains(r.was, target):
			case best.ID != "" && best.Target() != r.Target():
				return SavedRef{}, fault.Ambiguous.With("%q fits %s and %s: give the whole id", clip(target), best.Target(), r.Target())
			case best.ID == "" || best.Role != SessionOwner || r.Role == SessionOwner:
				best = r
			}
		}
		if best.ID == "" {
			what := "session or space " + clip(target)
			if target == "" {
				what = "any space"
			}
			return SavedRef{}, fault.NotFound.With("no ref for %s is stored here: add one first", what)
		}
		return best, nil
	})
}

// pick asks the cache, and the database if that does not know: another process
// may have stored it.
func (s shelf) pick(ctx context.Context, key string, pick func([]SavedRef) (SavedRef, error)) (SavedRef, error) {
	if fits := s.known.get(key); len(fits) > 0 {
		return pick(fits)
	}
	refs, err := s.read(ctx)
	if err != nil {
		return SavedRef{}, err
	}
	var read refCache // what is known may be forgotten again meanwhile
	read.set(refs, 0)
	return pick(read.get(key))
}

// get gives the refs that key stands for; the slice is not to be changed.
func (c *refCache) get(key string) []SavedRef {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.by[key]
}

// now is told to set about what is read from now on.
func (c *refCache) now() (changes uint64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.changes
}

// set takes all refs there were when now gave changes, unless there may have
// been others since.
func (c *refCache) set(all []SavedRef, changes uint64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.changes != changes {
		return
	}
	c.by, c.known = make(map[string][]SavedRef), true
	for _, r := range all {
		c.add(r)
	}
}

// put takes one that was stored now.
func (c *refCache) put(r SavedRef) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.changes++
	if !c.known {
		return
	}
	if len(c.by[r.ID]) > 0 {
		c.by, c.known = nil, false // what is remembered of it may have changed
		return
	}
	c.add(r)
}

func (c *refCache) add(r SavedRef) {
	keys := append([]string{r.ID, r.Target()}, r.was...)
	if r.External != "" {
		keys = append(keys, r.External)
	}
	if r.Role == SpaceOwner {
		keys = append(keys, "")
	}
	for _, k := range keys {
		c.by[k] = append(c.by[k][:len(c.by[k]):len(c.by[k])], r)
	}
}

func (c *refCache) forget() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.changes++
	c.by, c.known = nil, false
}

// routeOf says how the session's stream is opened for a batch, or why there is
// no ref to send it through.
func (s shelf) routeOf(ctx context.Context, session, via string, bd *body) (route, error) {
	first := &bd.ops[0]
	if !creates(first.method) {
		var r SavedRef
		var err error
		if via != "" && !capability.IsSpace(capability.Target(via)) {
			r, err = s.ref(ctx, via)
		} else {
			r, err = s.refFor(ctx, session)
		}
		if err != nil {
			return route{}, err
		}
		if r.Target() != session {
			return route{}, fault.BadArgument.With("ref %s is not for session %s", r.ID, session)
		}
		return route{ref: r.ID, host: r.Address(), proof: proof(r.Ref), held: r.next != nil}, nil
	}
	var space SavedRef
	var err error
	if via == "" {
		space, err = s.refFor(ctx, "")
	} else {
		space, err = s.ref(ctx, via)
	}
	if err != nil {
		return route{}, err
	}
	if !capability.IsSpace(space.Target()) {
		return route{}, fault.BadArgument.With("%s goes through a space's ref, which %s is not", first.method, space.ID)
	}
	to := route{space: space.ID, host: space.Address(), proof: proof(space.Ref), held: space.next != nil}
	for _, a := range first.args {
		switch {
		case a.Name == "ref" && a.Ref == nil:
			to.ref = stringOf(a.JSON)
		case a.Name == "via" && first.method == methodFork && a.Ref == nil:
			if with := stringOf(a.JSON); capability.Target(with) != "" { // else the server says that it is no ref
				to.with = with
			}
		}
	}
	if capability.Target(to.ref) != session {
		return route{}, fault.BadArgument.With("%s needs an argument ref: the id of the session's owner ref", first.method)
	}
	if to.with != "" {
		with, err := s.ref(ctx, to.with)
		if err != nil {
			return route{}, err
		}
		to.proof ^= proof(with.Ref)
	}
	return to, nil
}

var proofSeed = maphash.MakeSeed()

// proof tells refs apart within the process, without keeping what is in them.
func proof(r capability.Ref) uint64 { return maphash.String(proofSeed, r.Text()) }

// stringOf is a JSON string's text; "" for anything else.
func stringOf(text []byte) (s string) {
	_ = json.Unmarshal(text, &s)
	return s
}

// request turns a route into what a Link needs.
func (b *Box) request(ctx context.Context, session string, to route, incarnation int64) (StreamRequest, error) {
	req := StreamRequest{Session: session, Outbox: b.id, Secret: b.secret, Incarnation: uint64(incarnation),
		Redemptions: make(map[string]string)}
	get := func(id string) (capability.Ref, error) {
		r, err := b.Ref(ctx, id)
		if err == nil {
			req.Redemptions[id] = r.Redemption
		}
		return r.Ref, err
	}
	own, err := get(to.ref)
	if to.space == "" {
		req.Ref = own
		return req, err
	}
	space, err2 := get(to.space)
	if err2 != nil {
		return req, err2
	}
	if err != nil {
		own = space.With(to.ref, capability.Secret{}) // it is minted, whoever keeps its secret
	}
	req.Ref, req.SpaceRef, req.OwnerRef = own, &space, to.ref
	if to.with != "" {
		with, err := get(to.with)
		if err != nil {
			return req, err
		}
		req.With = []capability.Ref{with}
	}
	return req, nil
}
