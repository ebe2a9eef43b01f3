package capnweb_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httptest"

	"github.com/mooring-rpc/mooring/capnweb"
)

// arithmetic is a main object: functions by name, and a property.
func arithmetic(*http.Request) any {
	return capnweb.NewMethods(map[string]any{
		"square": func(n float64) float64 { return n * n },
		"divide": func(a, b int) (int, error) {
			if b == 0 {
				return 0, &capnweb.Error{Name: "RangeError", Message: "a division by zero"}
			}
			return a / b, nil
		},
		"each": func(ctx context.Context, upTo int, f *capnweb.Stub) error { // it blocks, and so takes a context
			for i := range upTo {
				p := f.Call(ctx, "", i)
				_, err := p.Await(ctx)
				p.Release()
				if err != nil {
					return err
				}
			}
			return nil
		},
	}).WithProperty("name", func() any { return "arithmetic" })
}

// serveExample serves main for as long as an example runs.
func serveExample(main func(*http.Request) any) (url string, stop func()) {
	srv := httptest.NewServer(capnweb.Handler(main, capnweb.Config{}, capnweb.AcceptOptions{}))
	return srv.URL, srv.Close
}

// connectExample dials a server and runs the connection until stop.
func connectExample(url string) (c *capnweb.Conn, stop func()) {
	link, err := capnweb.Dial(context.Background(), url, capnweb.DialOptions{})
	if err != nil {
		log.Fatal(err)
	}
	c = capnweb.NewConn(link, capnweb.Config{})
	ran := make(chan error)
	go func() { ran <- c.Run(context.Background()) }()
	return c, func() {
		c.Close("done")
		<-ran
	}
}

// A server offers an object over WebSocket and HTTP batches at one place, and a client calls it.
func ExampleHandler() {
	url, stop := serveExample(arithmetic)
	defer stop()
	c, hangUp := connectExample(url)
	defer hangUp()
	ctx := context.Background()
	main := c.Main()
	defer main.Release()

	p := main.Call(ctx, "square", 7)
	defer p.Release()
	fmt.Println(p.Await(ctx))

	p = main.Call(ctx, "square", "seven")
	defer p.Release()
	_, err := p.Await(ctx)
	fmt.Println(err)
	// Output:
	// 49 <nil>
	// TypeError: argument 1 of square: want a number, got a string
}

// Calls of a batch leave in one request, those that use the results of others among them.
func ExampleBatch() {
	url, stop := serveExample(arithmetic)
	defer stop()
	ctx := context.Background()
	b := capnweb.NewBatch(url, capnweb.DialOptions{}, capnweb.Config{})
	main := b.Main()
	nine := main.Call(ctx, "square", 3)
	eightyOne := main.Call(ctx, "square", nine)
	name := main.Get("name")
	bad := main.Call(ctx, "divide", 1, 0)
	if err := b.Send(ctx); err != nil {
		log.Fatal(err)
	}
	fmt.Println(eightyOne.Await(ctx))
	fmt.Println(name.Await(ctx))
	_, err := bad.Await(ctx)
	fmt.Println(err)
	// Output:
	// 81 <nil>
	// arithmetic <nil>
	// RangeError: a division by zero
}

// A function that is passed is called back.
func ExampleStub_Call_callback() {
	url, stop := serveExample(arithmetic)
	defer stop()
	c, hangUp := connectExample(url)
	defer hangUp()
	ctx := context.Background()
	main := c.Main()
	defer main.Release()
	p := main.Call(ctx, "each", 3, func(i int) { fmt.Println("called with", i) })
	defer p.Release()
	if _, err := p.Await(ctx); err != nil {
		log.Fatal(err)
	}
	// Output:
	// called with 0
	// called with 1
	// called with 2
}

// Results become what the program works with.
func ExamplePromise_Into() {
	type point struct {
		X int `json:"x"`
		Y int `json:"y"`
	}
	url, stop := serveExample(func(*http.Request) any {
		return capnweb.NewMethods(map[string]any{
			"mirror": func(p point) point { return point{p.Y, p.X} },
		})
	})
	defer stop()
	c, hangUp := connectExample(url)
	defer hangUp()
	ctx := context.Background()
	main := c.Main()
	defer main.Release()
	p := main.Call(ctx, "mirror", point{1, 2})
	defer p.Release()
	var to point
	if err := p.Into(ctx, &to); err != nil {
		log.Fatal(err)
	}
	fmt.Printf("%+v\n", to)
	// Output: {X:2 Y:1}
}

// An object with methods of its own kind reads its arguments by Scan.
func ExampleCall_Scan() {
	url, stop := serveExample(func(*http.Request) any { return greeter{} })
	defer stop()
	c, hangUp := connectExample(url)
	defer hangUp()
	ctx := context.Background()
	main := c.Main()
	defer main.Release()
	for _, args := range [][]any{{"Ada"}, {"Ada", "Good morning"}, {}} {
		p := main.Call(ctx, "greet", args...)
		fmt.Println(p.Await(ctx))
		p.Release()
	}
	// Output:
	// Hello, Ada <nil>
	// Good morning, Ada <nil>
	// <nil> TypeError: greet takes 1 to 2 arguments, got 0
}

type greeter struct{}

func (greeter) Serve(c *capnweb.Call) {
	var name string
	var greeting *string // may be left out
	if err := c.Scan(&name, &greeting); err != nil {
		c.Fail(err)
		return
	}
	if greeting == nil {
		greeting = new("Hello")
	}
	c.Return(*greeting + ", " + name)
}

func ExampleAs() {
	n, err := capnweb.As[uint8](200.0)
	fmt.Println(n, err)
	_, err = capnweb.As[uint8](300.0)
	fmt.Println(err)
	// Output:
	// 200 <nil>
	// TypeError: want a whole number from 0 to 255, got another number
}

// What a function serves may be written without a server: two connections over a pipe.
func ExamplePipe() {
	a, b := capnweb.Pipe()
	ctx := context.Background()
	server := capnweb.NewConn(a, capnweb.Config{Main: capnweb.Func(func(s string) string { return s + "!" })})
	client := capnweb.NewConn(b, capnweb.Config{})
	ran := make(chan error, 2)
	go func() { ran <- server.Run(ctx) }()
	go func() { ran <- client.Run(ctx) }()
	main := client.Main()
	p := main.Call(ctx, "", "hello")
	fmt.Println(p.Await(ctx))
	p.Release()
	main.Release()
	client.Close("done")
	fmt.Println(<-ran, <-ran)
	// Output:
	// hello! <nil>
	// <nil> <nil>
}

// A stream is read while it is written, with no more under way than the reader has room for.
func ExampleReadable() {
	url, stop := serveExample(func(*http.Request) any {
		return capnweb.NewMethods(map[string]any{
			"count": func(c *capnweb.Call, upTo int) {
				r, w := capnweb.NewReadable()
				c.Return(r)
				c.Go(func(ctx context.Context) {
					for i := range upTo {
						if w.Write(context.Background(), i) != nil {
							return
						}
					}
					_ = w.Close(context.Background())
				})
			},
		})
	})
	defer stop()
	c, hangUp := connectExample(url)
	defer hangUp()
	ctx := context.Background()
	main := c.Main()
	defer main.Release()
	p := main.Call(ctx, "count", 3)
	defer p.Release()
	r, err := p.Await(ctx)
	if err != nil {
		log.Fatal(err)
	}
	for {
		chunk, err := r.(*capnweb.Readable).Read(ctx)
		if errors.Is(err, io.EOF) {
			break
		}
		fmt.Println(chunk, err)
	}
	// Output:
	// 0 <nil>
	// 1 <nil>
	// 2 <nil>
}
