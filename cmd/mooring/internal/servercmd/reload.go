// Files that mooring serve reloads while it runs: its certificate, and its limits.

package servercmd

import (
	"context"
	"fmt"
	"os"
	"time"
)

// reloadInterval is the polling interval of the files.
const reloadInterval = 20 * time.Second

// reloadLoop calls each of reload at every interval, and with asked at each hangup, until ctx
// ends.
func reloadLoop(ctx context.Context, hangups <-chan os.Signal, reload ...func(ctx context.Context, asked bool)) {
	tick := time.NewTicker(reloadInterval)
	defer tick.Stop()
	for {
		asked := false
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		case <-hangups:
			asked = true
		}
		for _, again := range reload {
			again(ctx, asked)
		}
	}
}

// checkRegularFiles refuses files that can be read only once, such as pipes.
func checkRegularFiles(files ...string) error {
	for _, file := range files {
		if info, err := os.Stat(file); err == nil && !info.Mode().IsRegular() {
			return fmt.Errorf("%s is not a regular file", file)
		}
	}
	return nil
}
