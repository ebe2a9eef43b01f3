//go:build linear

package linear

// What the clients of a history do. A seed makes the plan; when what reaches
// which server is the machine's to say, so that a plan gives another history
// each time.
//
// A history goes by in slots, in which the clients are about the same things:
// one ref that they use, share from and revoke, one key, one value, one ref to
// be minted. So most of what meets there is a race that matters: the use of a
// ref against its revocation, a share against the death of its parent, two
// revocations, two equal puts of which one makes the event.

import (
	"math/rand/v2"
	"slices"
	"time"

	"github.com/mooring-rpc/mooring/capability"
)

const (
	minClients, maxClients = 4, 8
	minCalls, maxCalls     = 20, 48 // of a history in all, but for restores
	longestWait            = 2 * time.Millisecond
	deepest                = 3 // links from the owner's ref to one that is shared
)

// plan is what one history's clients do.
type plan struct {
	seed  uint64
	first call // the owner's, before all others: the refs that are there to begin with
	steps [][]step
}

// step is one call that a client makes.
type step struct {
	meet   bool          // not before all clients have come this far
	wait   time.Duration // and then so long
	server int
	call   call // expected cursors are filled in when it is made
	behind int  // an expected cursor is so far behind the last that the client heard of
	sever  bool // the connection is broken while the call is on its way
}

// slot is what the clients are about at a time.
type slot struct {
	mood       endKind
	victim     int // the ref they use
	child      int // the one they mint
	key, value int
	rights     capability.Rights // the child's
}

// endKind is whose end a slot may be.
type endKind uint8

const (
	peaceful endKind = iota
	revoking         // the victim's
	bumping          // every share's
)

// planner makes a plan. It keeps an eye on which refs there will be and which of
// them will live, as far as that can be told: what nobody can use is no race.
type planner struct {
	*rand.Rand
	servers int
	stern   bool
	refs    int // so many may be minted by now
	parent  [maxRefs]int
	lives   [maxRefs]bool
}

// makePlan makes the plan of a seed for so many servers. In a stern one nothing
// but the end of refs can meet: no equal puts, no two shares of one ref.
func makePlan(seed uint64, servers int, stern bool) plan {
	p := &planner{Rand: rand.New(rand.NewPCG(seed, 1)), servers: servers, stern: stern, refs: 3}
	p.lives[1], p.lives[2] = true, true
	out := plan{seed: seed, first: call{kind: callApply, ref: ownerRef, batch: batchOf(
		op{kind: opShare, target: 1, rights: everything}, op{kind: opShare, target: 2, rights: p.rights()})}}
	clients := minClients + p.IntN(maxClients-minClients+1)
	calls := minCalls + p.IntN(maxCalls-minCalls+1)
	home := make([]int, clients)
	for i := range home {
		home[i] = p.IntN(servers)
	}
	out.steps = make([][]step, clients)
	for number := range calls / clients {
		s := p.slot(number)
		meet, sharer := p.chance(60), p.IntN(clients)
		for i := range clients {
			st := step{meet: meet, server: home[i], behind: p.weighted(80, 15, 5), sever: p.chance(2)}
			if st.call = p.call(s, number, i); i == sharer {
				st.call = p.share(s)
			}
			if k := st.call.kind; k == callRevoke || k == callBump {
				st.sever = p.chance(10) // there are few of them
			}
			if p.chance(15) {
				st.server = p.IntN(servers)
			}
			if p.chance(50) {
				st.wait = time.Duration(p.Int64N(int64(longestWait)))
			}
			out.steps[i] = append(out.steps[i], st)
		}
		p.after(s)
	}
	return out
}

func (p *planner) chance(percent int) bool { return p.IntN(100) < percent }

// weighted gives the place of one of the weights.
func (p *planner) weighted(weights ...int) int {
	sum := 0
	for _, w := range weights {
		sum += w
	}
	n := p.IntN(sum)
	for i, w := range weights {
		if n -= w; n < 0 {
			return i
		}
	}
	panic("weights")
}

// rights are mostly all, so that refs are of use.
func (p *planner) rights() capability.Rights {
	if p.chance(75) {
		return everything
	}
	for {
		if some := capability.Rights(p.IntN(int(everything)+1)) & everything; some != 0 {
			return some
		}
	}
}

// slot takes one of the refs that live as its victim, and a new one for a child
// if there is room.
func (p *planner) slot(number int) slot {
	weights := []int{45, 40, 15}
	if p.stern {
		weights = []int{10, 75, 15}
	}
	s := slot{mood: endKind(p.weighted(weights...)), victim: p.IntN(p.refs), key: p.key(number), value: number + 1, rights: p.rights()}
	if p.chance(85) {
		s.victim = p.living()
	}
	if s.victim == ownerRef && s.mood == revoking && p.chance(90) {
		s.mood = peaceful // without its owner not much happens any more
	}
	if s.child = p.refs; p.refs == maxRefs {
		s.child = 1 + p.IntN(maxRefs-1)
	}
	return s
}

// key is one of those that there are, or the next one: what is new settles a revert.
func (p *planner) key(number int) int { return p.IntN(min(number+2, maxKeys)) }

// living is a ref that lives, the owner's if no share does.
func (p *planner) living() int {
	var all []int
	for i, lives := range p.lives {
		if lives {
			all = append(all, i)
		}
	}
	if len(all) == 0 {
		return ownerRef
	}
	return all[p.IntN(len(all))]
}

// after notes what a slot has left.
func (p *planner) after(s slot) {
	if s.child == p.refs {
		p.refs++
		p.lives[s.child] = true
	}
	for i := range p.lives {
		if s.mood == bumping || s.mood == revoking && slices.Contains(p.line(i), s.victim) {
			p.lives[i] = false
		}
	}
}

// line is a ref and those it was minted from, but for the owner's.
func (p *planner) line(i int) (all []int) {
	for ; i != ownerRef; i = p.parent[i] {
		all = append(all, i)
	}
	return all
}

// share is the minting of a slot's child, mostly from the victim.
func (p *planner) share(s slot) call {
	from := s.victim
	if len(p.line(from)) >= deepest || p.chance(25) {
		from = ownerRef
	}
	if s.child == p.refs {
		p.parent[s.child] = from
	}
	return call{kind: callApply, ref: from, batch: batchOf(op{kind: opShare, target: s.child, rights: s.rights})}
}

// call is one client's part of a slot.
func (p *planner) call(s slot, number, client int) call {
	acting := [...]int{s.victim, ownerRef, p.living(), p.IntN(p.refs), s.child}[p.weighted(60, 20, 10, 5, 5)]
	equal := op{kind: opPut, key: s.key, value: s.value, compare: p.chance(20)}
	fresh := op{kind: opPut, key: p.key(number), value: 100*(client+1) + number, compare: p.chance(20)}
	shareChild := op{kind: opShare, target: s.child, rights: s.rights}
	revokeVictim := op{kind: opRevoke, target: s.victim}
	applied := func(ops ...op) call {
		b := batchOf(ops...)
		b.atomic = len(ops) > 1 && p.chance(40)
		return call{kind: callApply, ref: acting, batch: b}
	}
	often := 35
	if p.stern {
		equal, shareChild, often = fresh, fresh, 60
	}
	if p.chance(often) {
		switch s.mood {
		case revoking:
			return []call{
				applied(revokeVictim),
				{kind: callRevoke, ref: acting, target: s.victim},
				applied(equal, revokeVictim, fresh),
				applied(shareChild, revokeVictim),
				applied(revokeVictim, equal),
			}[p.weighted(40, 35, 10, 5, 10)]
		case bumping:
			return []call{
				applied(op{kind: opBump}),
				{kind: callBump, ref: acting},
				applied(op{kind: opBump}, shareChild),
				applied(fresh, op{kind: opBump}),
			}[p.weighted(30, 20, 25, 25)]
		}
	}
	if !p.stern && p.chance(15) {
		revert, unrevert := op{kind: opRevert, key: s.key}, op{kind: opUnrevert}
		if p.chance(30) {
			revert.key = p.key(number)
		}
		return [...]call{applied(revert), applied(unrevert), applied(revert, fresh), applied(equal, unrevert), applied(unrevert, revert)}[p.weighted(45, 25, 15, 10, 5)]
	}
	switch p.weighted(40, 12, 12, 6, 6, 12, 12) {
	case 0:
		return applied(equal)
	case 1:
		return applied(fresh)
	case 2:
		if !p.stern {
			return p.share(s)
		}
		return applied(fresh)
	case 3:
		return applied(shareChild, equal)
	case 4:
		return applied(fresh, equal)
	case 5:
		return call{kind: callDescribe, ref: acting}
	}
	return call{kind: callEvents, ref: acting}
}
