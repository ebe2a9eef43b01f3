// Asking and answering. Neither needs an outbox: the request's id makes a repetition harmless.

package console

import (
	"context"
	"encoding/json"
	"fmt"

	"github.com/mooring-rpc/mooring/fault"
	"github.com/mooring-rpc/mooring/internal/session"
	"github.com/mooring-rpc/mooring/ledger"
)

// ask makes a request, whose id is the action's.
func ask(ctx context.Context, on *Page, r *Request) (*Answer, error) {
	args := []ledger.Arg{arg("request", r.ID), arg("kind", r.Kind)}
	if r.Message != "" {
		args = append(args, arg("message", r.Message))
	}
	if r.Text != "" {
		args = append(args, textPayload(r.Text))
	}
	if err := on.direct(ctx, r, session.MethodAsk, args); err != nil {
		return nil, err
	}
	return &Answer{Said: "Asked."}, nil
}

// answer answers a request, as its card shows it.
func answer(ctx context.Context, on *Page, r *Request) (*Answer, error) {
	args := []ledger.Arg{arg("request", r.Request), arg("shown", r.Shown)}
	if r.Choice != "" {
		args = append(args, arg("choice", r.Choice))
	}
	if r.Text != "" {
		args = append(args, textPayload(r.Text))
	}
	if err := on.direct(ctx, r, session.MethodAnswer, args); err != nil {
		return nil, err
	}
	return &Answer{Said: fmt.Sprintf("Answered %s.", r.Request)}, nil
}

// withdraw takes back what was asked under the page's ref. To withdraw what has ended is no error: it may be a repetition.
func withdraw(ctx context.Context, on *Page, r *Request) (*Answer, error) {
	err := on.direct(ctx, r, session.MethodWithdraw, []ledger.Arg{arg("request", r.Request)})
	if err != nil && fault.CodeOf(err) != fault.RequestEnded {
		return nil, err
	}
	return &Answer{Said: fmt.Sprintf("%s is withdrawn.", r.Request)}, nil
}

// textPayload returns the payload of a text.
func textPayload(text string) ledger.Arg {
	payload, _ := json.Marshal(map[string]string{"text": text}) // strings: cannot fail
	return ledger.Arg{Name: "payload", JSON: payload}
}

// direct applies an op without an outbox.
func (on *Page) direct(ctx context.Context, r *Request, method string, args []ledger.Arg) error {
	_, err := on.On.ApplyDirect(ctx, ledger.Intent{OpID: r.ID, BatchID: r.ID, Session: on.On.Target(), Method: method, Args: args})
	return err
}
