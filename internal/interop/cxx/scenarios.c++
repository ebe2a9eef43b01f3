// The scenarios of the C++ client. Each must leave nothing behind.

#include <string.h>

#include "client.h"

namespace {

using Type = kj::Exception::Type;

struct Ours {
  explicit Ours(House& house) {
    auto owned = kj::heap<NodeImpl>(house, kj::str("ours"));
    node = owned.get();
    client = house.own.add(kj::mv(owned));
  }
  NodeImpl* node;  // as long as client lives
  Node::Client client = nullptr;
};

// Everything is called through this, so that a scenario reads as what it does.
struct Calls {
  explicit Calls(Trial& t) : t(t), peer(t.bootstrap()) {}
  Trial& t;
  Peer::Client peer;

  auto echo(kj::StringPtr text, uint64_t number) {
    auto req = peer.echoRequest();
    req.setText(text);
    req.setNumber(number);
    return req.send();
  }
  auto make(kj::StringPtr name) {
    auto req = peer.makeRequest();
    req.setName(name);
    return req.send();
  }
  auto makeLater(kj::StringPtr name) {
    auto req = peer.makeLaterRequest();
    req.setName(name);
    return req.send();
  }
  auto promise(kj::StringPtr name) {
    auto req = peer.promiseRequest();
    req.setName(name);
    return req.send();
  }
  auto settle(kj::StringPtr failure = nullptr) {
    auto req = peer.settleRequest();
    req.setFailure(failure);
    return req.send();
  }
  auto hold(Node::Client node) {
    auto req = peer.holdRequest();
    req.setNode(node);
    return t.await(req.send());
  }
  auto holdNothing() { return t.await(peer.holdRequest().send()); }
  auto callBack(Node::Client node, uint32_t times) {
    auto req = peer.callBackRequest();
    req.setNode(node);
    req.setTimes(times);
    return req.send();
  }
  auto counts() { return t.await(peer.countsRequest().send()); }

  auto child(Node::Client node, kj::StringPtr name) {
    auto req = node.childRequest();
    req.setName(name);
    return req.send().getNode();
  }
  auto name(Node::Client node) { return node.nameRequest().send(); }
  kj::Promise<void> note(Node::Client node, uint32_t number) {
    auto req = node.noteRequest();
    req.setNumber(number);
    return req.send().ignoreResult();
  }
  void checkName(capnp::RemotePromise<Node::NameResults> answer, kj::StringPtr want) {
    auto got = t.await(kj::mv(answer));
    KJ_REQUIRE(got.getName() == want, got.getName(), want);
  }
};

void bootstrap(Trial& t) {
  for (uint64_t i : {1, 2}) {
    Calls c(t);
    KJ_REQUIRE(t.await(c.echo("hello", i)).getNumber() == i);
  }
}

// Many calls at once, and messages of several segments.
void calls(Trial& t) {
  Calls c(t);
  kj::Vector<capnp::RemotePromise<Peer::EchoResults>> sent;
  for (uint64_t i = 0; i < 300; i++) sent.add(c.echo(kj::str("call ", i), i));
  for (uint64_t i = 0; i < 300; i++) {
    auto got = t.await(kj::mv(sent[i]));
    KJ_REQUIRE(got.getNumber() == i && got.getText() == kj::str("call ", i));
  }
  auto req = c.peer.echoRequest();
  req.setNumber(uint64_t(1) << 63);
  auto parts = req.initParts(40);
  for (unsigned i = 0; i < parts.size(); i++) memset(parts.init(i, i * 1000).begin(), i, i * 1000);
  auto got = t.await(req.send());
  KJ_REQUIRE(got.getNumber() == uint64_t(1) << 63 && got.getParts().size() == 40);
  for (unsigned i = 0; i < 40; i++) {
    auto part = got.getParts()[i];
    KJ_REQUIRE(part.size() == i * 1000, i);
    for (auto b : part) KJ_REQUIRE(b == i);
  }
}

// Three deep on an answer that is held back; then the same on one that is an error.
void pipelining(Trial& t) {
  Calls c(t);
  for (kj::StringPtr why : {"", "as was asked"}) {
    Node::Client a = c.makeLater("a").getNode();
    auto b = c.child(a, "b");
    auto d = c.child(b, "c");
    bool answered = false;
    auto last = c.name(d).then([&](auto&& r) {
      answered = true;
      KJ_REQUIRE(r.getName() == "a/b/c");
    });
    auto first = c.name(a);
    last = last.eagerlyEvaluate(nullptr);
    t.await(c.echo("the calls above wait", 1));
    KJ_REQUIRE(!answered, "a call on an unresolved promise is answered");
    t.await(c.settle(why));
    if (why == "") {
      c.checkName(kj::mv(first), "a");
      t.await(kj::mv(last));
      KJ_REQUIRE(answered);
    } else {
      auto text = t.refused("a pipelined call", Type::FAILED, kj::mv(last));
      KJ_REQUIRE(text == kj::str("remote exception: ", why), text);
    }
  }
}

// Objects of either side go to the other and come back as what they are.
void capabilities(Trial& t) {
  Calls c(t);
  {
    Ours ours(t.house);
    auto said = c.hold(ours.client);
    KJ_REQUIRE(!said.getNull() && !said.getOwn());
    auto back = t.await(c.peer.heldRequest().send());
    auto node = back.getNode();
    KJ_IF_MAYBE (server, t.await(t.house.own.getLocalServer(node))) {
      KJ_REQUIRE(server == ours.node, "another object");
    } else {
      KJ_FAIL_REQUIRE("our object is not recognised");
    }
    c.checkName(c.name(node), "ours");
  }
  Node::Client theirs = c.make("theirs").getNode();
  c.checkName(c.name(theirs), "theirs");
  auto said = c.hold(theirs);
  KJ_REQUIRE(!said.getNull() && said.getOwn(), "their object is not recognised");
  c.checkName(c.name(c.peer.heldRequest().send().getNode()), "theirs");
  // Passed on while it is a promise still.
  auto req = c.peer.holdRequest();
  req.setNode(c.makeLater("later").getNode());
  auto held = req.send();
  t.await(c.settle());
  KJ_REQUIRE(t.await(kj::mv(held)).getOwn(), "their promise is not recognised");
  c.holdNothing();
}

// Calls before and after it is known that a promise is our own object are delivered in order.
void inOrder(Trial& t, Calls& c, const Ours& ours, Node::Client back) {
  constexpr uint32_t each = 20;
  kj::Vector<kj::Promise<void>> sent;
  auto send = [&]() {
    for (uint32_t i = 0; i < each; i++) sent.add(c.note(back, sent.size() + 1).eagerlyEvaluate(nullptr));
  };
  send();
  auto settled = c.settle();
  send();
  t.await(back.whenResolved());
  send();
  for (auto& p : sent) t.await(kj::mv(p));
  t.await(kj::mv(settled));
  auto& got = ours.node->numbers;
  KJ_REQUIRE(got.size() == 3 * each);
  for (uint32_t i = 0; i < got.size(); i++) KJ_REQUIRE(got[i] == i + 1, "out of order", i, got[i]);
}

void order(Trial& t) {
  Calls c(t);
  Ours ours(t.house);
  c.hold(ours.client);
  inOrder(t, c, ours, c.makeLater("").getNode());
  c.holdNothing();
}

// A capability that is announced as a promise and resolved later: to their object, to ours, and to an error.
void promises(Trial& t) {
  Calls c(t);
  {
    auto theirs = t.await(c.promise("theirs")).getNode();
    auto asked = c.name(theirs);
    t.await(c.settle());
    c.checkName(kj::mv(asked), "theirs");
    t.await(theirs.whenResolved());
    c.checkName(c.name(theirs), "theirs");
  }
  {
    Ours ours(t.house);
    c.hold(ours.client);
    inOrder(t, c, ours, t.await(c.promise("")).getNode());
    c.holdNothing();
  }
  auto broken = t.await(c.promise("broken")).getNode();
  auto asked = c.name(broken);
  t.await(c.settle("as was asked"));
  t.refused("a call before", Type::FAILED, kj::mv(asked));
  t.refused("a call after", Type::FAILED, c.name(broken));
}

void callbacks(Trial& t) {
  Calls c(t);
  Ours ours(t.house);
  t.await(c.callBack(ours.client, 50));
  KJ_REQUIRE(ours.node->numbers.size() == 50 && ours.node->numbers[49] == 50);
  Node::Client broken = kj::Exception(Type::OVERLOADED, __FILE__, __LINE__, kj::str("not now"));
  t.refused("a broken callback", Type::OVERLOADED, c.callBack(broken, 1));
}

void errors(Trial& t) {
  Calls c(t);
  for (Type type : {Type::FAILED, Type::OVERLOADED, Type::DISCONNECTED, Type::UNIMPLEMENTED}) {
    auto reason = kj::str("because of type ", static_cast<int>(type));
    auto req = c.peer.failRequest();
    req.setType(static_cast<uint16_t>(type));
    req.setReason(reason);
    auto text = t.refused(reason, type, req.send());
    KJ_REQUIRE(text == kj::str("remote exception: ", reason), text);
  }
  t.await(c.echo("all is well", 1));
}

void cancellation(Trial& t) {
  Calls c(t);
  auto before = c.counts();
  {
    auto one = c.peer.neverRequest().send(), two = c.peer.neverRequest().send();
    t.eventually("the calls run", [&]() { return c.counts().getRunning() == before.getRunning() + 2; });
  }
  t.eventually("they are cancelled", [&]() {
    auto now = c.counts();
    return now.getRunning() == before.getRunning() && now.getCancelled() == before.getCancelled() + 2;
  });
}

void release(Trial& t) {
  Calls c(t);
  kj::Vector<Node::Client> nodes;
  for (int i = 0; i < 100; i++) {
    nodes.add(t.await(c.make(kj::str("node ", i))).getNode());
    nodes.add(nodes.back());
  }
  KJ_REQUIRE(c.counts().getAlive() == 100, c.counts().getAlive());
  for (int i = 0; i < 200; i += 2) nodes[i] = nullptr;
  KJ_REQUIRE(c.counts().getAlive() == 100, "half of the references are held still");
  nodes.clear();
  t.eventually("they are gone", [&]() { return c.counts().getAlive() == 0; });
  t.await(c.make("untouched"));
  { auto unread = c.make("unread"); }
  Ours ours(t.house);
  for (int i = 0; i < 5; i++) c.hold(ours.client);
  c.holdNothing();
  t.eventually("they are gone, too", [&]() { return c.counts().getAlive() == 0; });
}

void unknown(Trial& t) {
  Calls c(t);
  auto stranger = c.peer.castAs<Stranger>();
  t.refused("an unknown interface", Type::UNIMPLEMENTED, stranger.greetRequest().send());
  t.refused("an unknown method", Type::UNIMPLEMENTED,
            c.peer.typelessRequest(capnp::typeId<Peer>(), 999, nullptr).send().ignoreResult());
  t.refused("a call on the result of one", Type::UNIMPLEMENTED, c.name(stranger.greetRequest().send().getNode()));
  t.await(c.echo("all is well", 1));
}

void null(Trial& t) {
  Calls c(t);
  auto said = c.holdNothing();
  KJ_REQUIRE(said.getNull() && !said.getOwn());
  auto back = t.await(c.peer.heldRequest().send());
  KJ_REQUIRE(!back.hasNode());
  t.refused("a call on it", Type::FAILED, c.name(back.getNode()));
  Node::Client later = c.makeLater("").getNode();
  auto before = c.name(later);
  t.await(c.settle());
  t.refused("a call before", Type::FAILED, kj::mv(before));
  t.refused("a call after", Type::FAILED, c.name(later));
  auto req = c.peer.callBackRequest();
  req.setTimes(1);
  t.refused("a null callback", Type::FAILED, req.send());
}

void streaming(Trial& t) {
  Calls c(t);
  constexpr unsigned n = 500, size = 4 << 10;
  auto sink = c.peer.openRequest().send().getSink();
  auto write = [&](size_t bytes) {
    auto req = sink.writeRequest();
    req.initBytes(bytes);
    return req.send();
  };
  for (unsigned i = 0; i < n; i++) t.await(write(size));
  auto done = t.await(sink.doneRequest().send());
  KJ_REQUIRE(done.getBytes() == n * size && done.getWrites() == n, done.getBytes(), done.getWrites());
  // A write that fails may be noticed by a later one only; done is what tells.
  write(0).then([]() {}, [](kj::Exception&&) {}).wait(t.io.waitScope);
  t.refused("done after a bad write", Type::FAILED, sink.doneRequest().send());
}

// The connection is cut, or the server goes away, or this process is killed, while calls are in flight.
void disconnect(Trial& t) {
  Calls c(t);
  Ours ours(t.house);
  c.hold(ours.client);
  ours.client = nullptr;
  Node::Client theirs = t.await(c.make("theirs")).getNode();
  auto one = c.peer.neverRequest().send(), two = c.peer.neverRequest().send();
  Node::Client later = c.makeLater("later").getNode();
  auto deep = c.name(c.child(c.child(later, "x"), "y"));
  t.eventually("the calls run", [&]() { return c.counts().getRunning() >= 2; });
  t.say("ready disconnect");
  t.refused("a call", Type::DISCONNECTED, kj::mv(one));
  t.refused("another call", Type::DISCONNECTED, kj::mv(two));
  t.refused("a pipelined call", Type::DISCONNECTED, kj::mv(deep));
  t.refused("a call on an object of the peer", Type::DISCONNECTED, c.name(theirs));
  t.refused("a new call", Type::DISCONNECTED, c.echo("", 1));
}

struct Scenario {
  kj::StringPtr name;
  void (*run)(Trial&);
};

const Scenario scenarios[] = {
    {"bootstrap", bootstrap}, {"calls", calls},       {"pipelining", pipelining},     {"capabilities", capabilities},
    {"order", order},         {"promises", promises}, {"callbacks", callbacks},       {"errors", errors},
    {"cancellation", cancellation}, {"release", release}, {"unknown", unknown},       {"null", null},
    {"streaming", streaming}, {"disconnect", disconnect}, {"restore", restore},
    {"save", save},
};

}  // namespace

void runScenario(kj::StringPtr name, Trial& t) {
  for (auto& s : scenarios) {
    if (s.name == name) return s.run(t);
  }
  KJ_FAIL_REQUIRE("there is no such scenario", name);
}
