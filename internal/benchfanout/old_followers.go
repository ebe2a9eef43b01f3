//go:build ignore

// The followers of an older commit: .ci/old builds this file and note.go inside that commit's tree, with its client. It is
// asked as a child of benchfanout is (child.go), for less.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"github.com/mooring-rpc/mooring/capability"
	"github.com/mooring-rpc/mooring/client"
	"github.com/mooring-rpc/mooring/internal/heap"
	"github.com/mooring-rpc/mooring/outbox"
	"github.com/mooring-rpc/mooring/session"
)

type request struct {
	Follow *following
	Expect *expectation
	Await  bool
}

type reply struct {
	Error string `json:",omitempty"`
	Last  int64  `json:",omitempty"`
}

func main() {
	if err := run(os.Stdin, os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run(in io.Reader, out io.Writer) error {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	go heap.Tend(ctx) // as that commit's command has it
	var fs *followers
	requests, replies := json.NewDecoder(in), json.NewEncoder(out)
	for {
		var r request
		if err := requests.Decode(&r); err != nil {
			if err == io.EOF {
				err = nil
			}
			if fs != nil {
				err = errors.Join(err, fs.close())
			}
			return err
		}
		var a reply
		var err error
		switch {
		case r.Follow != nil:
			fs, err = follow(ctx, r.Follow)
		case r.Expect != nil:
			fs.expect(r.Expect)
		case r.Await:
			a.Last, err = fs.await(ctx)
		}
		if err != nil {
			a.Error = err.Error()
		}
		if err := replies.Encode(a); err != nil {
			return err
		}
	}
}

func (fs *followers) connector(ctx context.Context, o *following) (func(ctx context.Context, address string, topics []*follower) error, error) {
	if err := os.MkdirAll(o.Dir, 0o700); err != nil {
		return nil, err
	}
	box, err := outbox.OpenSQLite(ctx, filepath.Join(o.Dir, "outbox.db"), outbox.Config{})
	if err != nil {
		return nil, err
	}
	fs.onClose = append(fs.onClose, box.Close)
	return func(ctx context.Context, address string, topics []*follower) (err error) {
		c, err := client.Open(ctx, client.Config{Outbox: box, Offline: true})
		if err != nil {
			return err
		}
		defer func() { err = errors.Join(err, c.Close()) }()
		ref, err := capability.ParseRef(o.Refs[0])
		if err != nil {
			return err
		}
		ref.Hosts = []string{address}
		s, err := c.Session(ctx, ref)
		if err != nil {
			return err
		}
		return s.Subscribe(ctx, client.SubscribeOptions{}, func(e session.Event) error {
			topics[0].note(e.Cursor)
			return nil
		})
	}, nil
}
