# Every kind of type there is, for the tests of package bridge.

@0x9c3b1f6a5d20e784;

using Go = import "/go.capnp";

$Go.package("kinds");
$Go.import("github.com/mooring-rpc/mooring/internal/testschema/kinds");

enum Colour {
  red @0;
  green @1;
  blue @2;
}

struct Kinds {
  nothing @0 :Void;
  flag @1 :Bool;
  set @2 :Bool = true;
  small @3 :Int8 = -3;
  short @4 :Int16;
  medium @5 :Int32 = 100000;
  long @6 :Int64 = -5;
  byte @7 :UInt8;
  word @8 :UInt16 = 7;
  wide @9 :UInt32;
  huge @10 :UInt64;
  single @11 :Float32 = 1.5;
  double @12 :Float64 = -0.25;
  text @13 :Text = "default";
  data @14 :Data = 0x"01 02";
  colour @15 :Colour = green;
  inner @16 :Inner;
  inners @17 :List(Inner);
  numbers @18 :List(Int32);
  longs @19 :List(UInt64);
  flags @20 :List(Bool);
  doubles @21 :List(Float64);
  texts @22 :List(Text);
  colours @23 :List(Colour);
  rows @24 :List(List(UInt8));
  bytes @25 :List(Data);
  union {
    none @26 :Void;
    amount @27 :UInt16 = 9;
    name @28 :Text;
    pair :group {
      left @29 :Int32;
      right @30 :Text;
    }
  }
  box @31 :Box(Inner);
  textBox @32 :Box(Text);
  later @33 :Text;
}

struct Inner {
  n @0 :UInt8;
  next @1 :Inner;
}

struct Box(T) {
  value @0 :T;
}

interface Base(T) {
  keep @0 (value :T) -> (value :T);
}

interface Listener {
  heard @0 (text :Text);
  counted @1 (a :UInt32, b :UInt32) -> (sum :UInt64);
}

interface Server extends(Base(Inner)) {
  echo @0 (kinds :Kinds) -> (kinds :Kinds);
  two @1 (first :Text, second :UInt32 = 4) -> (first :Text, second :UInt32 = 4);
  nothing @2 ();
  listen @3 (listener :Listener, times :UInt32) -> (total :UInt64);
  child @4 (name :Text) -> (server :Server);
  any @5 (of :List(Capability)) -> (cap :Capability);
  fail @6 (reason :Text);
}
