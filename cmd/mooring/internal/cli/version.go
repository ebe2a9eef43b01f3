// The version of the binary.

package cli

import "runtime/debug"

// Unversioned is the version of a binary built without version control data.
const Unversioned = "unversioned"

// Version returns the module's version as built from a checkout or a module, else Unversioned.
func Version() string {
	if info, ok := debug.ReadBuildInfo(); ok && info.Main.Version != "" && info.Main.Version != "(devel)" {
		return info.Main.Version
	}
	return Unversioned
}
