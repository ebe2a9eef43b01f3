package main

import (
	"fmt"
	"io"
	"os"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/mooring-rpc/mooring/internal/lockbuf"
)

// pty is a terminal, with what somebody sits before.
type pty struct {
	t     *testing.T
	tty   *os.File // the program's end
	shown lockbuf.Buffer
	keys  *os.File // the person's
	done  chan struct{}
}

// newPTY opens a terminal, until the test ends.
func newPTY(t *testing.T) *pty {
	t.Helper()
	keys, err := os.OpenFile("/dev/ptmx", os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	n := 0
	control, err := keys.SyscallConn()
	if err == nil {
		e := control.Control(func(fd uintptr) {
			if err = unix.IoctlSetPointerInt(int(fd), unix.TIOCSPTLCK, 0); err == nil {
				n, err = unix.IoctlGetInt(int(fd), unix.TIOCGPTN)
			}
		})
		if e != nil {
			err = e
		}
	}
	if err != nil {
		t.Fatal(err)
	}
	p := &pty{t: t, keys: keys, done: make(chan struct{})}
	if p.tty, err = os.OpenFile(fmt.Sprint("/dev/pts/", n), os.O_RDWR|unix.O_NOCTTY, 0); err != nil {
		t.Fatal(err)
	}
	go func() {
		defer close(p.done)
		_, _ = io.Copy(&p.shown, keys) // ends when nobody has the other end
	}()
	t.Cleanup(func() {
		_ = p.tty.Close()
		_ = p.keys.Close()
		<-p.done
	})
	return p
}

// until waits for words on the screen.
func (p *pty) until(words string) {
	p.t.Helper()
	for deadline := time.Now().Add(time.Minute); !strings.Contains(p.shown.String(), words); time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			p.t.Fatalf("the terminal shows %q, never %q", p.shown.String(), words)
		}
	}
}

func (p *pty) typed(text string) {
	p.t.Helper()
	if _, err := p.keys.WriteString(text); err != nil {
		p.t.Fatal(err)
	}
}
