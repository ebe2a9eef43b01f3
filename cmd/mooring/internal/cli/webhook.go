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

// WebhookSecret returns the secret in the first line of a file. A file that is not there is made, with a new secret, which Env.Err
// is told of.
func (env *Env) WebhookSecret(ctx context.Context, name string) (string, error) {
	f, err := os.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	switch {
	case err == nil:
		secret := client.NewWebhookSecret()
		_, err = f.WriteString(secret + "\n")
		if err = errors.Join(err, f.Close()); err != nil {
			return "", fmt.Errorf("--webhook-secret: %w", errors.Join(err, os.Remove(name)))
		}
		fmt.Fprintf(env.Err, "made a new secret, in %s: give it to the receiver\n", name)
		return secret, nil
	case !errors.Is(err, fs.ErrExist):
		return "", fmt.Errorf("--webhook-secret: %w", err)
	}
	text, err := ReadFileLimited(ctx, name, maxWebhookSecret)
	if err != nil {
		return "", fmt.Errorf("--webhook-secret: %w", err)
	}
	line, _, _ := strings.Cut(string(text), "\n")
	return strings.TrimSpace(line), nil
}
