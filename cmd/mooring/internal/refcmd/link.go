// mooring link: prints the address of a ref's page.

package refcmd

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"time"

	"github.com/oklog/ulid/v2"
	"github.com/spf13/cobra"

	"github.com/mooring-rpc/mooring/capability"
	"github.com/mooring-rpc/mooring/cmd/mooring/internal/cli"
	"github.com/mooring-rpc/mooring/cmd/mooring/internal/home"
	"github.com/mooring-rpc/mooring/fault"
	"github.com/mooring-rpc/mooring/internal/dialerror"
	"github.com/mooring-rpc/mooring/internal/page"
	"github.com/mooring-rpc/mooring/internal/share"
)

// Link returns the command mooring link.
func Link(env *cli.Env) *cobra.Command {
	var public, creator bool
	cmd := &cobra.Command{
		Use:   "link REF",
		Short: "Print the address of the page that shows a session, or a space's sessions",
		Long: "Print the address at which a browser shows what a ref allows to see: a session live, or a\n" +
			"space's list of sessions. The ref's secret is in the part after the #, which browsers do not\n" +
			"send. Anyone who has the address has the ref, so make a limited one with mooring share\n" +
			"first. With --public, for a ref that may share the session, it is the address of its public\n" +
			"share, if it has one, without a secret. With --opencode it is the value of enterprise.url in\n" +
			"opencode's config, for a space's ref that allows only to create.\n\n" + home.RefHelp,
		Example: "  mooring share ses_01J… --rights read --to reader.ref && mooring link @reader.ref\n" +
			"  mooring link @srv/owner.ref\n  mooring link ses_01J… --public\n" +
			"  mooring share @srv/owner.ref --rights create --to creator.ref && mooring link @creator.ref --opencode",
		Args: cli.ArgCount(1, 1),
	}
	h := home.AddFlags(env, cmd)
	cmd.Flags().BoolVar(&public, "public", false, "the address of the session's public share; asks the server")
	cmd.Flags().BoolVar(&creator, "opencode", false, "the value of enterprise.url in opencode's config, for a create-only ref of a space; asks the server")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if public && creator {
			return fault.Usage.With("--public and --opencode are for different refs: give one of them")
		}
		ref, redemption, err := findLinkRef(cmd.Context(), h, args[0])
		if err != nil {
			return err
		}
		if creator {
			return linkCreator(cmd.Context(), h, ref)
		}
		if public {
			return linkPublic(cmd.Context(), h, ref, redemption)
		}
		return linkTo(h, ref)
	}
	h.CompleteRefs(cmd)
	return cmd
}

// findLinkRef returns the ref of a REF, with the redemption id for it, without a server.
func findLinkRef(ctx context.Context, h *home.Folder, arg string) (ref capability.Ref, redemption string, err error) {
	ref, id, err := h.Ref(ctx, arg)
	if err != nil || id == "" {
		return ref, ulid.Make().String(), err
	}
	c, err := h.Open(ctx, true)
	if err != nil {
		return ref, "", err
	}
	defer func() { err = errors.Join(err, c.Close()) }()
	want := capability.Append
	if capability.IsSpace(id) {
		want = capability.List
	}
	saved, err := h.SavedRef(ctx, c.Outbox(), id, want)
	return saved.Ref, saved.Redemption, err
}

// linkTo prints the address of a ref's page, and warns that it contains the secret.
func linkTo(h *home.Folder, ref capability.Ref) error {
	if capability.Sealed(ref.ID) {
		return fault.Sealed.With("the ref is bound to a key, which no browser has: share one that is not sealed, and link that")
	}
	warnOfSecret(h)
	return printLink(h, ref.WebAddress()+page.RefPath(ref))
}

// linkCreator prints the URL prefix under which opencode shares with a create-only ref. A ref
// that allows more must not get into a URL, so the server is asked.
func linkCreator(ctx context.Context, h *home.Folder, ref capability.Ref) (err error) {
	if !capability.IsSpace(ref.Target()) || capability.Sealed(ref.ID) {
		return fault.BadArgument.With("opencode shares under a space's ref that is not sealed: make one with mooring share @owner.ref --rights create")
	}
	c, err := h.Open(ctx, false)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, c.Close()) }()
	d, err := c.Redeem(ctx, ref)
	switch {
	case err != nil:
		return err
	case d.Grant.Dead != fault.None:
		return d.Grant.Dead.With("%s", "the ref allows nothing any more: make another")
	case d.Grant.Rights != capability.Create:
		return fault.BadArgument.With("the ref allows %s, and an address must hold one that can create and nothing else: make it with mooring share REF --rights create", d.Grant.Rights)
	}
	warnOfSecret(h)
	return printLink(h, ref.WebAddress()+share.CreatorPath(ref))
}

func warnOfSecret(h *home.Folder) {
	if !h.Env.JSON {
		fmt.Fprintln(h.Env.Err, "this address carries the ref's secret: whoever has it may do all that the ref allows")
	}
}

func printLink(h *home.Folder, url string) error {
	return h.Env.Print(map[string]string{"url": url}, "%s\n", url)
}

// linkTimeout bounds the request for a session's public share.
const linkTimeout = 30 * time.Second

// linkPublic requests the public share of a ref's session and prints its address.
func linkPublic(ctx context.Context, h *home.Folder, ref capability.Ref, redemption string) error {
	if !capability.IsSession(ref.Target()) {
		return fault.BadArgument.With("only sessions have public shares: give a session's ref")
	}
	if err := h.CheckPlaintext(ref); err != nil {
		return err
	}
	trust, err := h.TLSConfig(ctx)
	if err != nil {
		return err
	}
	transport := &http.Transport{Proxy: http.ProxyFromEnvironment, TLSClientConfig: trust}
	defer transport.CloseIdleConnections()
	ctx, cancel := context.WithTimeout(ctx, linkTimeout)
	defer cancel()
	body, err := json.Marshal(map[string]string{"secret": ref.Secret.RevealText(), "redemption": redemption})
	if err != nil {
		return fmt.Errorf("ask for the public share: %w", err)
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, ref.WebAddress()+"/s/"+ref.ID+"/public", bytes.NewReader(body))
	if err != nil {
		return fmt.Errorf("ask for the public share: %w", err)
	}
	req.Header.Set("Origin", req.URL.Scheme+"://"+req.URL.Host)
	req.Header.Set("X-Mooring", "1")
	req.Header.Set("Content-Type", "application/json")
	res, err := transport.RoundTrip(req) // does not follow redirects: the secret is sent nowhere else
	if err != nil {
		return fault.Unavailable.Because(err, "%s", dialerror.Explain(ref.Address(), err))
	}
	defer res.Body.Close()
	var answer struct{ Public, Code, Message string }
	body, err = io.ReadAll(io.LimitReader(res.Body, 64<<10))
	if err == nil {
		err = json.Unmarshal(body, &answer)
	}
	if err != nil {
		why := &dialerror.HTTPStatus{Code: res.StatusCode, Location: res.Header.Get("Location"), Body: string(body)}
		return fault.Unavailable.Because(err, "%s", dialerror.Explain(ref.Address(), why))
	}
	if res.StatusCode != http.StatusOK {
		if code, ok := fault.ParseCode(answer.Code); ok {
			return code.With("%s", answer.Message)
		}
		return fault.Incompatible.With("the server answered with status %d", res.StatusCode)
	}
	return printLink(h, ref.WebAddress()+answer.Public)
}
