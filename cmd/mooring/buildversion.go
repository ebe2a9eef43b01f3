// The version of the binary.

package main

import "runtime/debug"

// unversioned is the version of a binary built without version control data.
const unversioned = "unversioned"

// version returns the module's version as built from a checkout or a module, else unversioned.
func version() string {
	if info, ok := debug.ReadBuildInfo(); ok && info.Main.Version != "" && info.Main.Version != "(devel)" {
		return info.Main.Version
	}
	return unversioned
}
