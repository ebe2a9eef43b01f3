// codec: the core, as the loop of internal/peerconn drives it.

package rpc

import (
	"context"
	"errors"

	rpccp "capnproto.org/go/capnp/v3/std/capnp/rpc"

	"github.com/mooring-rpc/mooring/internal/peerconn"
)

// codec implements peerconn.Codec.
type codec Conn

func (d *codec) Read() ([]byte, error) { return d.transport.ReadBatch(context.Background()) }

func (d *codec) Write(batch []byte, from int, ends []int) error {
	to := from
	if len(ends) > 0 {
		to = ends[len(ends)-1]
	}
	return d.transport.WriteBatch(context.Background(), batch[from:to])
}

func (d *codec) Receive(batch []byte, _ *peerconn.Reading) {
	(*Conn)(d).receiveBatch(batch)
	poison(batch)
}

func (d *codec) UnlockAndRun() { (*Conn)(d).unlockAndRun() }

func (d *codec) Wrote() { d.wakeLimitWaiters() }

func (d *codec) InFlight() int { return d.questions.Len() + len(d.answers) }

// IsUnused counts our bootstrap interface as no reference of the peer's.
func (d *codec) IsUnused() bool {
	exports := d.exports.Len()
	if d.boot != nil {
		if _, ok := d.exportIDs[d.boot]; ok {
			exports--
		}
	}
	return exports == 0 && d.questions.Len() == 0 && len(d.answers) == 0 && len(d.imports) == 0
}

func (d *codec) TransportEnding(err error) peerconn.Ending {
	d.countHitOf(err)
	return transportEnding(err)
}

func (d *codec) Disconnected(why error) error { return Disconnectedf("%v", why) }

func (d *codec) SendAbort(why error) {
	d.send(func(m rpccp.Message) error { return writeAbort(m, why.(*Exception), d.maxReason()) })
}

func (d *codec) Break(why error) {
	if why == nil {
		why = errors.New("closed on this side")
	}
	d.ended = Disconnectedf("the connection has ended: %s", reasonOf(why))
	d.breakAll(d.ended)
	d.afterUnlock = append(d.afterUnlock, (*Conn)(d).abandonLanes)
}

func (d *codec) Finish() (done bool) {
	if len(d.orphans) == 0 {
		return true
	}
	d.mu.Unlock()
	(*Conn)(d).failOrphans()
	d.mu.Lock()
	return false
}

func (d *codec) LogText(err error) string { return reasonOf(err) }
