// mooring key: the key to which sealed refs for this home folder are bound.

package refcmd

import (
	"crypto/ed25519"

	"github.com/spf13/cobra"

	"github.com/mooring-rpc/mooring/capability"
	"github.com/mooring-rpc/mooring/cmd/mooring/internal/cli"
	"github.com/mooring-rpc/mooring/cmd/mooring/internal/home"
)

// Key returns the command mooring key.
func Key(env *cli.Env) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "key",
		Short: "Print the public key that refs can be sealed to",
		Long: "Print the home folder's public key; the first call makes it. Give it to those who share refs\n" +
			"with you: a ref made with share --seal KEY can only be redeemed with this home folder, so\n" +
			"its text alone is useless. The private key is the folder's " + home.SealKeyFile + ".",
		Example: "  mooring share ses_01J… --rights read --seal \"$(mooring --home helper key)\" --to helper.ref",
		Args:    cli.ArgCount(0, 0),
	}
	h := home.AddFlags(env, cmd)
	cmd.RunE = func(*cobra.Command, []string) error {
		dir, err := h.MakeDir()
		if err != nil {
			return err
		}
		key, err := home.MakeSealKey(dir)
		if err != nil {
			return err
		}
		text := capability.SealKeyText(key.Public().(ed25519.PublicKey))
		return env.Print(map[string]string{"key": text}, "%s\n", text)
	}
	return cmd
}
