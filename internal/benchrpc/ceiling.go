package main

// The ceiling of what a client on Node can do: a server that looks at no message and has its one answer ready. Whatever
// a real server does, calls of that client take as long as this.

import (
	"bytes"
	"context"
	"fmt"
	"net/http"

	"github.com/coder/websocket"

	"github.com/mooring-rpc/mooring/internal/wsock"
)

func ceilingServe(w http.ResponseWriter, r *http.Request) {
	c, err := wsock.Accept(w, r, wsock.AcceptOptions{})
	if err != nil {
		return
	}
	defer c.CloseNow()
	var answers [][]byte
	for {
		_, said, err := c.Read(context.Background())
		if err != nil {
			return
		}
		if question, ok := bytes.CutPrefix(said, []byte(`["pull",`)); ok {
			answers = append(answers, fmt.Appendf(nil, `["resolve",%s,"%s"]`, bytes.TrimSuffix(question, []byte("]")), message))
		}
		if len(answers) > 0 && !c.Buffered() {
			if c.Write(context.Background(), websocket.MessageText, answers...) != nil {
				return
			}
			answers = answers[:0]
		}
	}
}
