// Objects that peers call.

package capnweb

// Object is something of this side that a peer may reference and call. Serve is called once for each call, in the order of
// their arrival, and of all calls over one connection never two at a time: it must not block. Work that blocks goes to
// Call.Go; to answer later, keep the Call. Every call is answered once, by Return or Fail; an unanswered one stays
// until its caller cancels it, or the connection ends. A panic is answered as an internal error.
//
// An Object that is a Releaser is notified when it is not referenced any more. One that is a Getter has properties.
type Object interface{ Serve(c *Call) }

// Releaser is notified when the last reference to an object is released: on the goroutine that released it. It must not
// block. However often an object was exported, Release is called once, and again only if it was exported again afterwards.
// That holds for pointers; for any other type each export is counted by itself.
type Releaser interface{ Release() }

// Getter is an object with properties besides its methods. Get is called like Serve and must not block; ok false is
// undefined. Stubs and promises in the value stay the object's: the peer gets its own references. Without it, reading a
// property of a method's name returns a stub of that method.
type Getter interface {
	Get(name string) (value any, ok bool)
}
