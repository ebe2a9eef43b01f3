package incident

import (
	"context"
	"log/slog"
)

// requestKey is the context key of a request's id.
type requestKey struct{}

// NewContext returns a context of a request, whose id is a name made by New.
func NewContext(ctx context.Context, id string) context.Context {
	return context.WithValue(ctx, requestKey{}, id)
}

// FromContext returns the id of the request that ctx belongs to; "" if it belongs to none.
func FromContext(ctx context.Context) string {
	id, _ := ctx.Value(requestKey{}).(string)
	return id
}

// Logger returns log with the id of the request that ctx belongs to, if any.
func Logger(ctx context.Context, log *slog.Logger) *slog.Logger {
	if id := FromContext(ctx); id != "" {
		return log.With("request", id)
	}
	return log
}
