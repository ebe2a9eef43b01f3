// The optional methods of a transport beside its codec's interface, and the error by which it refuses to read.

package peerconn

import "errors"

// ActivityReporter is implemented by transports over which a peer may show a sign of life without a message, such as a ping.
// They call the function then.
type ActivityReporter interface{ SetOnActivity(heard func()) }

// ProgressReporter is implemented by transports that write large batches in pieces. They call the function when a piece was
// written and another follows.
type ProgressReporter interface{ SetOnProgress(wrote func()) }

// ReadAdmitter is implemented by transports that buffer a partial message. They call the function before they buffer so many
// bytes of one, with the bytes they have; it may wait or refuse. 0 says that the buffer is released.
type ReadAdmitter interface {
	SetAdmitRead(reading func(bytes int, have []byte) error)
}

// TryWriter is implemented by transports that can write without waiting. Without it, 64 echoes in flight run at 0.88 of the
// speed (docs/benchmarks.md, "Tricks on trial").
type TryWriter interface {
	// TryWriteBatch writes as far as that goes without waiting. If done is false, the rest is written by the next write, before
	// its own messages, if any. If tried is false, nothing was written and done is false.
	TryWriteBatch(messages []byte) (tried, done bool, err error)
}

// Peeker is implemented by transports that know whether another message has already been received. The reader calls it.
type Peeker interface{ More() bool }

// initTransport uses what the transport offers.
func (l *Loop) initTransport() {
	t := l.cfg.Transport
	if p, ok := t.(ActivityReporter); ok {
		p.SetOnActivity(l.heard)
	}
	if p, ok := t.(ProgressReporter); ok {
		l.reportsProgress = true
		p.SetOnProgress(l.onWriteProgress)
	}
	if p, ok := t.(ReadAdmitter); ok {
		p.SetAdmitRead(func(n int, have []byte) error { return RefusedRead(l.cfg.Intake.ReserveRead(n, have)) })
	}
	l.tryWriter, _ = t.(TryWriter)
	l.peeker, _ = t.(Peeker)
}

// refusal is the error a transport gets when it may not read on.
type refusal struct{ error }

func (e refusal) Unwrap() error { return e.error }

// RefusedRead wraps an error, if it is one, as a refusal to read on.
func RefusedRead(err error) error {
	if err == nil {
		return nil
	}
	return refusal{err}
}

// AsRefusal returns the error inside a refusal.
func AsRefusal(err error) (error, bool) {
	r, ok := errors.AsType[refusal](err)
	return r.error, ok
}
