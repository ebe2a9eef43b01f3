package page

import "github.com/mooring-rpc/mooring/capability"

// RefPath returns the path of the page that shows what a ref allows to see, with the ref's secret in its
// fragment, which browsers do not send.
func RefPath(ref capability.Ref) string {
	if capability.IsSpace(ref.Target()) {
		return "/sessions#" + ref.ID + "#" + ref.Secret.RevealText()
	}
	return "/s/" + ref.ID + "#" + ref.Secret.RevealText()
}
