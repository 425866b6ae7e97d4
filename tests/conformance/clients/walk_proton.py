"""python-qpid-proton's blocking client, logged in by the name and key of a policy."""

from __future__ import annotations

from proton import Message
from proton.utils import BlockingConnection

from tests.conformance.clients.steps import KEY, POLICY, PORT, step

connection = BlockingConnection(
    f"127.0.0.1:{PORT}", timeout=10, user=POLICY, password=KEY, allowed_mechs="PLAIN", allow_insecure_mechs=True
)
with step("send"):
    sender = connection.create_sender("q")
    for body in ("one", "two", "three"):
        sender.send(Message(body=body, id=body, properties={"minutes": 90}))
with step("receive and accept"):
    receiver = connection.create_receiver("q")
    received = receiver.receive(10)
    assert (received.body, received.id, received.properties) == ("one", "one", {"minutes": 90})
    receiver.accept()
with step("reject, to the dead-letter queue"):
    receiver.receive(10)
    receiver.reject()
    dead = connection.create_receiver("q/$DeadLetterQueue")
    assert dead.receive(10).body == "two"
    dead.accept()
with step("release and receive again"):
    receiver.receive(10)
    receiver.release(delivered=False)
    assert receiver.receive(10).body == "three"
    receiver.accept()
with step("topic and subscription"):
    connection.create_sender("t").send(Message(body="news"))
    subscribed = connection.create_receiver("t/Subscriptions/s")
    assert subscribed.receive(10).body == "news"
    subscribed.accept()
with step("close"):
    connection.close()
