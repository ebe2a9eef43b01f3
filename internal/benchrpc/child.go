package main

// A child process: a server or a client, which does what it is asked for over
// its standard input and answers over its standard output, in lines of JSON. It
// ends when its input does, so it never outlives the benchmark.

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/signal"
	"runtime"
	"runtime/debug"
	"runtime/pprof"
	"sync"
	"time"
)

// envChild makes this program a child.
const envChild = "MOORING_BENCHRPC_CHILD"

// request is one thing to do, by the first field that is set.
type request struct {
	Serve      string        // listen and serve this contender's echo
	Connect    string        // hold connections of this contender,
	Address    string        // to there,
	Count      int           // so many, each of which has made a call
	Disconnect bool          // close all connections
	Measure    time.Duration // make calls on the first connection for so long,
	Flight     int           // so many at a time
	Usage      bool
	Memory     bool
	CPUProfile string // begin a profile into this file
	EndProfile bool
	MemProfile string // write a profile of memory
	Heap       bool   // of what is in use, not of all allocations
}

// reply is what came of a request.
type reply struct {
	Error    string
	Address  string
	Measured measurement
	Used     usage
	Memory   memory
}

// memory is what a process holds, after what is free has been given back.
type memory struct {
	RSS        int64 // 0: not known on this system
	Heap       int64 // in use, without stacks
	Stacks     int64
	Goroutines int
}

func memoryNow() (memory, error) {
	for range 2 { // the second time frees what had finalizers
		debug.FreeOSMemory()
		time.Sleep(50 * time.Millisecond)
	}
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	rss, err := residentBytes("self")
	return memory{rss, int64(m.HeapInuse), int64(m.StackInuse), runtime.NumGoroutine()}, err
}

// child is the state of a child process.
type child struct {
	links   []link
	failed  chan error // of serving
	profile *os.File
}

func childMain() {
	signal.Ignore(os.Interrupt) // a Ctrl-C is for the benchmark, which then ends this process
	in, out := json.NewDecoder(os.Stdin), json.NewEncoder(os.Stdout)
	c := &child{failed: make(chan error, 1)}
	for {
		var r request
		if err := in.Decode(&r); err != nil {
			if err != io.EOF {
				fmt.Fprintln(os.Stderr, "benchrpc child:", err)
			}
			return
		}
		answer, err := c.do(r)
		if err != nil {
			answer.Error = err.Error()
		}
		if err := out.Encode(answer); err != nil {
			return // nobody is there
		}
	}
}

func (c *child) do(r request) (answer reply, err error) {
	select {
	case err := <-c.failed:
		return answer, err
	default:
	}
	switch {
	case r.Serve != "":
		answer.Address, err = c.serve(r.Serve)
	case r.Connect != "":
		err = c.connect(r.Connect, r.Address, r.Count)
	case r.Disconnect:
		err = c.disconnect()
	case r.Measure > 0:
		answer.Measured, err = measured(c.links[0], r.Flight, r.Measure)
	case r.Usage:
		answer.Used = usageNow()
	case r.Memory:
		answer.Memory, err = memoryNow()
	case r.CPUProfile != "":
		if c.profile, err = os.Create(r.CPUProfile); err == nil {
			err = pprof.StartCPUProfile(c.profile)
		}
	case r.EndProfile:
		pprof.StopCPUProfile()
		err = c.profile.Close()
	case r.MemProfile != "":
		err = writeMemProfile(r.MemProfile, r.Heap)
	}
	return answer, err
}

// serve listens on a free port of loopback.
func (c *child) serve(name string) (address string, err error) {
	who, err := contenderByName(name)
	if err != nil {
		return "", err
	}
	ln, err := new(net.ListenConfig).Listen(context.Background(), "tcp", "127.0.0.1:0")
	if err != nil {
		return "", err
	}
	go func() { c.failed <- who.serve(ln) }()
	return ln.Addr().String(), nil
}

// dialsAtOnce is how many connections are made at the same time.
const dialsAtOnce = 16

// connect makes connections and a call on each.
func (c *child) connect(name, address string, count int) error {
	who, err := contenderByName(name)
	if err != nil {
		return err
	}
	ctx := context.Background()
	links := make([]link, count)
	errs := make([]error, dialsAtOnce)
	var all sync.WaitGroup
	for k := range errs {
		all.Go(func() {
			for i := k; i < count && errs[k] == nil; i += len(errs) {
				if links[i], errs[k] = who.dial(ctx, address); errs[k] == nil {
					errs[k] = links[i].echo()
				}
			}
		})
	}
	all.Wait()
	for _, l := range links {
		if l != nil {
			c.links = append(c.links, l)
		}
	}
	return errors.Join(errs...)
}

func (c *child) disconnect() error {
	errs := make([]error, len(c.links))
	var all sync.WaitGroup
	for i, l := range c.links {
		all.Go(func() { errs[i] = l.close() })
	}
	all.Wait()
	c.links = nil
	return errors.Join(errs...)
}

func writeMemProfile(file string, heap bool) error {
	f, err := os.Create(file)
	if err != nil {
		return err
	}
	name := "allocs"
	if heap {
		name = "heap"
	}
	runtime.GC()
	runtime.GC() // a profile is complete up to the collection before the last
	return errors.Join(pprof.Lookup(name).WriteTo(f, 0), f.Close())
}
