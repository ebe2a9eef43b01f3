// The Peer of internal/testschema/interop.capnp and its objects, on the C++ implementation.
#pragma once

#include <capnp/capability.h>
#include <kj/function.h>
#include <kj/vector.h>

#include "interop.capnp.h"

// House is what all objects of one side share. It outlives them.
struct House {
  unsigned alive = 0, running = 0, cancelled = 0;
  capnp::CapabilityServerSet<Node> own;
  kj::Maybe<Node::Client> held;
  kj::Vector<kj::Function<void(kj::StringPtr failure)>> waiting;

  // A new object, or for no name what is held, perhaps nothing.
  kj::Maybe<Node::Client> thing(kj::StringPtr name);
};

// NodeImpl is a counted object.
class NodeImpl final : public Node::Server {
public:
  NodeImpl(House& house, kj::String name);
  ~NodeImpl() noexcept(false);

  kj::Vector<uint32_t> numbers;

protected:
  kj::Promise<void> name(NameContext context) override;
  kj::Promise<void> child(ChildContext context) override;
  kj::Promise<void> note(NoteContext context) override;
  kj::Promise<void> noted(NotedContext context) override;

private:
  House& house;
  kj::String called;
};

// PeerImpl is the bootstrap object.
class PeerImpl final : public Peer::Server {
public:
  explicit PeerImpl(House& house) : house(house) {}

protected:
  kj::Promise<void> echo(EchoContext context) override;
  kj::Promise<void> make(MakeContext context) override;
  kj::Promise<void> makeLater(MakeLaterContext context) override;
  kj::Promise<void> promise(PromiseContext context) override;
  kj::Promise<void> settle(SettleContext context) override;
  kj::Promise<void> hold(HoldContext context) override;
  kj::Promise<void> held(HeldContext context) override;
  kj::Promise<void> callBack(CallBackContext context) override;
  kj::Promise<void> fail(FailContext context) override;
  kj::Promise<void> never(NeverContext context) override;
  kj::Promise<void> counts(CountsContext context) override;
  kj::Promise<void> open(OpenContext context) override;

private:
  House& house;
};
