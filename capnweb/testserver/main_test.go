// The test server as a program: it says where it listens, serves both transports and ends when it is told to.

package main

import (
	"bufio"
	"context"
	"io"
	"net/http"
	"strings"
	"testing"

	"go.uber.org/goleak"

	"github.com/mooring-rpc/mooring/capnweb"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestRun(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	out, in := io.Pipe()
	ended := make(chan error, 1)
	go func() { ended <- run(ctx, []string{"--listen", "127.0.0.1:0"}, in, io.Discard) }()
	address, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		t.Fatal(err)
	}
	address = strings.TrimSpace(address)

	tr, err := capnweb.Dial(t.Context(), "ws://"+address, capnweb.DialOptions{})
	if err != nil {
		t.Fatal(err)
	}
	conn := capnweb.NewConn(tr, capnweb.Config{})
	closed := make(chan error, 1)
	go func() { closed <- conn.Run(context.Background()) }()
	main := conn.Main()
	p := main.Call(t.Context(), "square", 3)
	if v, err := p.Await(t.Context()); err != nil || v != 9.0 {
		t.Errorf("over a WebSocket: %v, %v", v, err)
	}
	p.Release()
	main.Release()

	post, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "http://"+address,
		strings.NewReader(`["push",["pipeline",0,["square"],[4]]]`+"\n"+`["pull",1]`))
	if err != nil {
		t.Fatal(err)
	}
	post.Header.Set("Origin", "https://elsewhere.example")
	resp, err := http.DefaultClient.Do(post)
	if err != nil {
		t.Fatal(err)
	}
	defer http.DefaultClient.CloseIdleConnections()
	text, err := io.ReadAll(resp.Body)
	_ = resp.Body.Close() // it has been read
	if err != nil || string(text) != `["resolve",1,16]` {
		t.Errorf("in a batch: %q, %v", text, err)
	}
	if got := resp.Header.Get("Access-Control-Allow-Origin"); got != "*" && got != "https://elsewhere.example" {
		t.Errorf("Access-Control-Allow-Origin: %q", got)
	}

	cancel()
	if err := <-ended; err != nil {
		t.Errorf("it ended with %v", err)
	}
	<-closed
}

func TestWrongFlags(t *testing.T) {
	for _, args := range [][]string{{"--nonsense"}, {"--listen", "nowhere"}} {
		if run(t.Context(), args, io.Discard, io.Discard) == nil {
			t.Errorf("%v is accepted", args)
		}
	}
}
