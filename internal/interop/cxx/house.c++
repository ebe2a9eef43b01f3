#include "house.h"

#include <kj/debug.h>

namespace {

kj::Exception failure(kj::StringPtr reason) {
  return kj::Exception(kj::Exception::Type::FAILED, __FILE__, __LINE__, kj::str(reason));
}

class SinkImpl final : public Sink::Server {
public:
  explicit SinkImpl(House& house) : house(house) { ++house.alive; }
  ~SinkImpl() noexcept(false) { --house.alive; }

protected:
  kj::Promise<void> write(WriteContext context) override {
    auto bytes = context.getParams().getBytes();
    // The implementation itself fails what comes after a failed streaming call.
    if (bytes.size() == 0) return failure("a write of nothing");
    total += bytes.size();
    ++writes;
    return kj::READY_NOW;
  }

  kj::Promise<void> done(DoneContext context) override {
    context.getResults().setBytes(total);
    context.getResults().setWrites(writes);
    return kj::READY_NOW;
  }

private:
  House& house;
  uint64_t total = 0;
  uint32_t writes = 0;
};

kj::Promise<void> callBackFrom(Node::Client node, uint32_t i, uint32_t times) {
  if (i > times) return kj::READY_NOW;
  auto req = node.noteRequest();
  req.setNumber(i);
  return req.send().ignoreResult().then(
      [node = kj::mv(node), i, times]() mutable { return callBackFrom(kj::mv(node), i + 1, times); });
}

}  // namespace

kj::Maybe<Node::Client> House::thing(kj::StringPtr name) {
  if (name.size() > 0) return own.add(kj::heap<NodeImpl>(*this, kj::str(name)));
  KJ_IF_MAYBE (h, held) { return *h; }
  return nullptr;
}

NodeImpl::NodeImpl(House& house, kj::String name) : house(house), called(kj::mv(name)) { ++house.alive; }
NodeImpl::~NodeImpl() noexcept(false) { --house.alive; }

kj::Promise<void> NodeImpl::name(NameContext context) {
  context.getResults().setName(called);
  return kj::READY_NOW;
}

kj::Promise<void> NodeImpl::child(ChildContext context) {
  auto path = kj::str(called, '/', context.getParams().getName());
  KJ_IF_MAYBE (node, house.thing(path)) { context.getResults().setNode(*node); }
  return kj::READY_NOW;
}

kj::Promise<void> NodeImpl::note(NoteContext context) {
  numbers.add(context.getParams().getNumber());
  return kj::READY_NOW;
}

kj::Promise<void> NodeImpl::noted(NotedContext context) {
  context.getResults().setNumbers(kj::arrayPtr(numbers.begin(), numbers.size()));
  return kj::READY_NOW;
}

kj::Promise<void> PeerImpl::echo(EchoContext context) {
  auto params = context.getParams();
  auto results = context.getResults();
  results.setText(params.getText());
  results.setNumber(params.getNumber());
  results.setParts(params.getParts());
  return kj::READY_NOW;
}

kj::Promise<void> PeerImpl::make(MakeContext context) {
  KJ_IF_MAYBE (node, house.thing(context.getParams().getName())) { context.getResults().setNode(*node); }
  return kj::READY_NOW;
}

kj::Promise<void> PeerImpl::makeLater(MakeLaterContext context) {
  auto paf = kj::newPromiseAndFulfiller<void>();
  house.waiting.add([fulfiller = kj::mv(paf.fulfiller)](kj::StringPtr why) mutable {
    if (why.size() > 0) {
      fulfiller->reject(failure(why));
    } else {
      fulfiller->fulfill();
    }
  });
  return paf.promise.then([this, context]() mutable {
    KJ_IF_MAYBE (node, house.thing(context.getParams().getName())) { context.getResults().setNode(*node); }
  });
}

kj::Promise<void> PeerImpl::promise(PromiseContext context) {
  auto paf = kj::newPromiseAndFulfiller<Node::Client>();
  house.waiting.add([this, name = kj::str(context.getParams().getName()),
                     fulfiller = kj::mv(paf.fulfiller)](kj::StringPtr why) mutable {
    if (why.size() > 0) {
      fulfiller->reject(failure(why));
      return;
    }
    KJ_IF_MAYBE (node, house.thing(name)) {
      fulfiller->fulfill(kj::cp(*node));
    } else {
      fulfiller->reject(failure("nothing is held"));
    }
  });
  context.getResults().setNode(Node::Client(kj::mv(paf.promise)));
  return kj::READY_NOW;
}

kj::Promise<void> PeerImpl::settle(SettleContext context) {
  auto waiting = kj::mv(house.waiting);
  house.waiting = {};
  for (auto& settle : waiting) settle(context.getParams().getFailure());
  return kj::READY_NOW;
}

kj::Promise<void> PeerImpl::hold(HoldContext context) {
  auto params = context.getParams();
  if (!params.hasNode()) {
    house.held = nullptr;
    context.getResults().setNull(true);
    return kj::READY_NOW;
  }
  auto node = params.getNode();
  house.held = node;
  return house.own.getLocalServer(node).then([context](kj::Maybe<Node::Server&> server) mutable {
    context.getResults().setOwn(server != nullptr);
  });
}

kj::Promise<void> PeerImpl::held(HeldContext context) {
  KJ_IF_MAYBE (node, house.held) { context.getResults().setNode(*node); }
  return kj::READY_NOW;
}

kj::Promise<void> PeerImpl::callBack(CallBackContext context) {
  auto params = context.getParams();
  return callBackFrom(params.getNode(), 1, params.getTimes());
}

kj::Promise<void> PeerImpl::fail(FailContext context) {
  auto params = context.getParams();
  return kj::Exception(static_cast<kj::Exception::Type>(params.getType()), __FILE__, __LINE__,
                       kj::str(params.getReason()));
}

kj::Promise<void> PeerImpl::never(NeverContext context) {
  context.allowCancellation();
  ++house.running;
  return kj::Promise<void>(kj::NEVER_DONE).attach(kj::defer([this]() {
    --house.running;
    ++house.cancelled;
  }));
}

kj::Promise<void> PeerImpl::counts(CountsContext context) {
  auto results = context.getResults();
  results.setAlive(house.alive);
  results.setRunning(house.running);
  results.setCancelled(house.cancelled);
  return kj::READY_NOW;
}

kj::Promise<void> PeerImpl::open(OpenContext context) {
  context.getResults().setSink(kj::heap<SinkImpl>(house));
  return kj::READY_NOW;
}
