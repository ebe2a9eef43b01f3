// Addresses to listen at.

package cli

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"syscall"

	"github.com/mooring-rpc/mooring/fault"
)

// CheckListen refuses, as fault.Usage, what is not HOST:PORT to listen at. A port may be a service's name.
func CheckListen(flag, address string) error {
	_, port, err := net.SplitHostPort(address)
	if err != nil {
		return fault.Usage.With("%s %q is not HOST:PORT", flag, address)
	}
	if !IsPort(port) {
		return fault.Usage.With("%s %q: %q is not a port: give a number from 0 to 65535", flag, address, port)
	}
	return nil
}

// IsPort reports whether text is a port, as a number or as the name of a service.
func IsPort(text string) bool {
	_, err := net.LookupPort("tcp", text)
	return err == nil
}

// ListenTCP listens at a flag's address. Its error is ListenError's.
func ListenTCP(ctx context.Context, flag, address string) (net.Listener, error) {
	ln, err := new(net.ListenConfig).Listen(ctx, "tcp", address)
	if err != nil {
		return nil, ListenError(flag, address, err)
	}
	return ln, nil
}

// ListenError returns why an address cannot be listened at, and what to do; of one in use it is fault.InUse.
func ListenError(flag, address string, err error) error {
	switch label := ""; {
	case errors.Is(err, syscall.EADDRINUSE) && strings.HasPrefix(address, "unix:"):
		label = "the file is there already"
		if _, detail, ok := strings.Cut(err.Error(), ": "+syscall.EADDRINUSE.Error()+": "); ok {
			label += ": " + detail
		}
		return fault.InUse.Because(err, "%s %s: %s", flag, address, label)
	case errors.Is(err, syscall.EADDRINUSE):
		return fault.InUse.Because(err, "%s %s: another program listens there: stop that, or take another port (port 0 takes a free one)", flag, address)
	case errors.Is(err, syscall.EACCES):
		return fmt.Errorf("%s %s: this user may not listen there (%w): use a port above 1023, or a proxy in front of the server", flag, address, syscall.EACCES)
	case errors.Is(err, syscall.EADDRNOTAVAIL):
		return fmt.Errorf("%s %s: this machine has no such address (%w): use one of its own, or 0.0.0.0 for all", flag, address, syscall.EADDRNOTAVAIL)
	default:
		return fmt.Errorf("%s %s: %w", flag, address, err)
	}
}
