# What two vats show each other when they are tested against one another
# (docs/interop.md). Each side serves a Peer as its bootstrap object and calls
# the other's. Nothing of this is spoken by Mooring's server.

@0xb7b1c5a2e94d3f60;

using Go = import "/go.capnp";

$Go.package("interop");
$Go.import("github.com/mooring-rpc/mooring/internal/testschema/interop");

interface Node {
  # An object that its side counts for as long as it lives.
  name @0 () -> (name :Text);
  child @1 (name :Text) -> (node :Node);
  # A new object, called PARENT/NAME.

  note @2 (number :UInt32) -> ();
  # Writes the number down. Calls of note show their order.

  noted @3 () -> (numbers :List(UInt32));
}

interface Peer {
  echo @0 (text :Text, number :UInt64, parts :List(Data)) -> (text :Text, number :UInt64, parts :List(Data));

  make @1 (name :Text) -> (node :Node);
  # A new object, at once.

  makeLater @2 (name :Text) -> (node :Node);
  # The same, answered by settle. An empty name stands for what is held then.

  promise @3 (name :Text) -> (node :Node);
  # The same, answered at once with a promise that settle resolves.

  settle @4 (failure :Text) -> ();
  # Settles all that waits, in the order of its calls: well, or if there is a
  # text with a failure of that reason.

  hold @5 (node :Node) -> (null :Bool, own :Bool);
  # Keeps node instead of what was held before; null keeps nothing. The answer
  # says whether it was null, or an object of this side that has come back.

  held @6 () -> (node :Node);
  # What is held, perhaps null.

  callBack @7 (node :Node, times :UInt32) -> ();
  # Notes 1, 2 … times on node, each when the one before is answered.

  fail @8 (type :UInt16, reason :Text) -> ();
  # Fails with this type of rpc.capnp's Exception.

  never @9 () -> ();
  # Is not answered. Counted as running until it is given up.

  counts @10 () -> (alive :UInt32, running :UInt32, cancelled :UInt32);
  # The objects there are (nodes and sinks), the calls of never that run, and
  # those that were given up, of all connections.

  open @11 () -> (sink :Sink);
}

interface Sink {
  # Takes a stream. A write of no bytes fails it.
  write @0 (bytes :Data) -> stream;
  done @1 () -> (bytes :UInt64, writes :UInt32);
}

interface Stranger {
  # An interface that no side has.
  greet @0 () -> (node :Node);
}
