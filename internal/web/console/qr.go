// Links as QR codes.

package console

import (
	"encoding/base64"
	"fmt"
	"strings"

	"rsc.io/qr"

	"github.com/mooring-rpc/mooring/fault"
)

// quiet is the margin around a code, in its modules.
const quiet = 4

// qrCode returns a text as a QR code: the address of an SVG picture that contains it.
func qrCode(text string) (string, error) {
	code, err := qr.Encode(text, qr.M)
	if err != nil {
		return "", fault.TooLarge.With("the link is too long for a QR code")
	}
	size := code.Size + 2*quiet
	var svg strings.Builder
	fmt.Fprintf(&svg, `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %d %d" shape-rendering="crispEdges"><path fill="#fff" d="M0 0h%dv%dH0z"/><path d="`, size, size, size, size)
	for y := range code.Size {
		for x := range code.Size {
			if code.Black(x, y) {
				fmt.Fprintf(&svg, "M%d %dh1v1h-1z", x+quiet, y+quiet)
			}
		}
	}
	svg.WriteString(`"/></svg>`)
	return "data:image/svg+xml;base64," + base64.StdEncoding.EncodeToString([]byte(svg.String())), nil
}
