// Flags of webhooks: the notices that are delivered, and the file of the secret.

package cli

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"strings"

	"github.com/mooring-rpc/mooring/client"
	"github.com/mooring-rpc/mooring/fault"
	"github.com/mooring-rpc/mooring/internal/newfile"
	"github.com/mooring-rpc/mooring/internal/notice"
)

// CheckNotices checks the values of --on. Its error is fault.Usage, and names the notices that there are.
func CheckNotices(on []string) error {
	for _, typ := range on {
		if !slices.Contains(notice.Types(), typ) {
			return fault.Usage.With("--on: there is no %q, only %s", SanitizeLine(typ), strings.Join(notice.Types(), ", "))
		}
	}
	return nil
}

// maxWebhookSecret bounds the file of a webhook's secret, in bytes.
const maxWebhookSecret = 4096

// WebhookSecret is the secret of a webhook, from a file.
type WebhookSecret struct {
	Text string
	env  *Env
	file string // that was made for it; "" if it was there
}

// WebhookSecret returns the secret in the first line of a file. A file that is not there is made, with a new secret: then Announce or
// Discard it. A file that cannot be read or made is fault.Usage.
func (env *Env) WebhookSecret(ctx context.Context, name string) (*WebhookSecret, error) {
	f, err := os.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	switch {
	case err == nil:
		s := &WebhookSecret{Text: client.NewWebhookSecret(), env: env, file: name}
		_, err = f.WriteString(s.Text + "\n")
		if err = errors.Join(err, f.Close()); err != nil {
			return nil, fmt.Errorf("--webhook-secret: %w", errors.Join(err, os.Remove(name)))
		}
		return s, nil
	case !errors.Is(err, fs.ErrExist):
		return nil, fault.Usage.Because(err, "--webhook-secret: cannot write %s: %v", name, newfile.Cause(err))
	}
	text, err := ReadFileLimited(ctx, name, maxWebhookSecret)
	switch {
	case errors.Is(err, ErrStopped):
		return nil, err
	case err != nil:
		return nil, fault.Usage.Because(err, "--webhook-secret: %v", err)
	}
	line, _, _ := strings.Cut(string(text), "\n")
	return &WebhookSecret{Text: strings.TrimSpace(line)}, nil
}

// Announce tells Env.Err of a secret that was made.
func (s *WebhookSecret) Announce() {
	if s.file != "" {
		fmt.Fprintf(s.env.Err, "made a new secret, in %s: give it to the receiver\n", s.file)
	}
}

// Discard removes the file of a secret that was made, and that nobody has.
func (s *WebhookSecret) Discard() {
	if s.file != "" {
		_ = os.Remove(s.file)
	}
}
