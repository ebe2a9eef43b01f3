// Command stylesheet prints the styles of highlighted code (make web).
package main

import (
	"fmt"

	"github.com/mooring-rpc/mooring/internal/page/internal/palette"
)

func main() { fmt.Print(palette.CSS()) }
