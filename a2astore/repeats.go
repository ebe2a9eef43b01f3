package a2astore

// Messages that are sent again.

import (
	"context"
	"encoding/json"
	"fmt"

	"github.com/a2aproject/a2a-go/v2/a2a"
	"github.com/a2aproject/a2a-go/v2/a2asrv"
)

// Repeats returns an interceptor that answers a message which its user has sent before with the task that it is in, as that is now, so that a client may send
// it again when an answer was lost. It comes behind the interceptors that authenticate.
func (s *Store) Repeats() a2asrv.CallInterceptor { return repeats{store: s} }

type repeats struct {
	a2asrv.PassthroughCallInterceptor
	store *Store
}

// Before implements a2asrv.CallInterceptor.
func (r repeats) Before(ctx context.Context, _ *a2asrv.CallContext, req *a2asrv.Request) (context.Context, any, error) {
	send, ok := req.Payload.(*a2a.SendMessageRequest)
	if !ok || send.Message == nil || send.Message.ID == "" {
		return ctx, nil, nil
	}
	t, err := r.store.taskOfMessage(ctx, send.Message.ID)
	if t == nil { // not one in an any
		return ctx, nil, err
	}
	return ctx, t, err
}

// taskOfMessage returns the task that a message of the caller is in; nil for none.
func (s *Store) taskOfMessage(ctx context.Context, message string) (*a2a.Task, error) {
	user, err := s.caller(ctx)
	if err != nil {
		return nil, err
	}
	key, err := sentKey(user, message)
	if err != nil {
		return nil, err
	}
	page, err := s.session.Get(ctx, key)
	if err != nil {
		return nil, fmt.Errorf("look for message %s: %w", message, err)
	}
	if len(page.Entries) == 0 {
		return nil, nil
	}
	var sent sentRow
	if err := json.Unmarshal(page.Entries[0].Payload, &sent); err != nil {
		return nil, fmt.Errorf("the value of %s: %w", key, err)
	}
	is, err := s.Get(ctx, sent.Task)
	if err != nil {
		return nil, err
	}
	return is.Task, nil
}
