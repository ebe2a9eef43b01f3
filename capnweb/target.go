// Objects that peers call.

package capnweb

// Object is something of this side that a peer may hold and call. Serve is called once for each call, in the order of
// their arrival, and of all calls over one connection never two at a time: it must not block. What blocks goes to
// Call.Go; what is answered later keeps the Call. Every call is answered once, by Return or Fail; one that never is
// stays until its caller gives it up, or the connection ends. A panic is answered as an internal error.
//
// An Object that is a Releaser is told when nobody holds it any more. One that is a Getter has properties.
type Object interface{ Serve(c *Call) }

// Releaser is told when the last reference to an object is gone: on the goroutine that released it. It must not block.
// However often an object was handed out, it is told once, and again only if it was handed out again afterwards. That is
// so for pointers; of any other type each handing out counts by itself.
type Releaser interface{ Release() }

// Getter is an object with properties besides its methods. Get is called like Serve and must not block; ok false is
// undefined. Stubs and promises in the value stay the object's: the peer gets references of its own. Without it, a property's name gives a stub of the method of that name to those who take it as a value.
type Getter interface {
	Get(name string) (value any, ok bool)
}
