"""Bytes of unfinished frames: what clients hold has a limit, and stops no one else."""

from dledger_node.raft.messages import AppendRequest
from dledger_node.remoting import native
from dledger_wire.listener import (
    announced,
    append_request,
    hello,
    listening,
    until,
)

KIB = 1024
PUSH = AppendRequest(
    sender="n1", receiver="n0", term=1, previous_index=-1, previous_term=-1, first_index=0,
    last_index=0, entries_term=1, committed_index=-1,
)  # fmt: skip


async def test_a_member_may_send_larger_frames_than_a_client() -> None:
    async with listening(
        client_frame_bytes_max=64 * KIB, peer_frame_bytes_max=128 * KIB
    ) as listener:
        client, member = await listener.connect(), await listener.connect()
        await member.say(hello())
        await member.answer()

        await client.say(announced(64 * KIB + 1))
        await member.say(append_request(7, bytes(80 * KIB)))

        assert await client.is_cut()
        assert (await member.answer()).opaque == 7
        await member.say(announced(128 * KIB + 1))
        assert await member.is_cut()
        assert listener.closed == {"protocol": 2}


async def test_unfinished_frames_share_a_budget_and_small_ones_are_never_paused() -> None:
    budget_bytes = 1024 * KIB
    async with listening(received_bytes_max=budget_bytes, frame_s=30) as listener:
        good = await listener.connect()
        greedy = [await listener.connect() for _ in range(8)]
        for caller in greedy:
            caller.writer.write(announced(4096 * KIB) + bytes(1024 * KIB))
        await until(lambda: listener.gate.received_bytes > budget_bytes)
        for _ in range(20):
            assert await good.is_served()

        read_ahead_bytes = 256 * KIB  # what one read takes, for each of them
        assert listener.gate.received_bytes <= budget_bytes + 8 * read_ahead_bytes
        listener.pass_time(30)
        assert [await caller.is_cut() for caller in greedy] == [True] * 8
        await until(lambda: listener.gate.received_bytes == 0)


async def test_a_paused_large_frame_is_read_once_there_is_room() -> None:
    async with listening(received_bytes_max=256 * KIB) as listener:
        greedy, patient = await listener.connect(), await listener.connect()
        await greedy.say(announced(4096 * KIB) + bytes(200 * KIB))
        await until(lambda: listener.gate.received_bytes >= 200 * KIB)
        patient.writer.write(append_request(7, bytes(600 * KIB)))
        await until(lambda: listener.gate.received_bytes > 256 * KIB)
        assert not listener.appended

        greedy.writer.close()

        assert (await patient.answer()).opaque == 7
        assert not listener.closed


async def test_a_flood_from_one_address_stops_no_large_frame_from_another() -> None:
    """Every client waited until the flood had sent its frames, or was cut."""
    async with listening(received_bytes_max=4096 * KIB) as listener:
        for _ in range(48):
            greedy = await listener.connect()
            greedy.writer.write(announced(4096 * KIB) + bytes(2048 * KIB))
        await until(lambda: listener.gate.received_bytes > 4096 * KIB)
        other = await listener.connect(local_addr=("127.0.0.2", 0))

        for opaque in range(3):
            await other.say(append_request(opaque, bytes(600 * KIB)))
            assert (await other.answer()).opaque == opaque
        assert not listener.closed


async def test_a_client_whose_large_frame_is_whole_by_now_is_read_again() -> None:
    """It was not: the rest of the frame had arrived with the part for which it was paused."""
    async with listening(received_bytes_max=256 * KIB) as listener:
        greedy, busy = await listener.connect(), await listener.connect()
        await greedy.say(announced(4096 * KIB) + bytes(300 * KIB))
        await until(lambda: listener.gate.received_bytes > 256 * KIB)

        small = b"".join(append_request(number, bytes(150)) for number in range(1, 800))
        await busy.say(append_request(0, bytes(75 * KIB)) + small)

        assert [(await busy.answer()).opaque for _ in range(800)] == list(range(800))
        assert await busy.is_served()
        assert not listener.closed


async def test_the_link_of_a_member_is_read_however_much_clients_hold() -> None:
    """A member that cannot read its leader's pushes gets no heartbeats either, and stands."""
    async with listening(received_bytes_max=256 * KIB) as listener:
        greedy, member = await listener.connect(), await listener.connect()
        await member.say(hello("n1"))
        await member.answer()
        await greedy.say(announced(4096 * KIB) + bytes(300 * KIB))
        await until(lambda: listener.gate.received_bytes > 256 * KIB)

        member.writer.write(b"".join(native.encode(PUSH, [bytes(600 * KIB)])))

        await until(lambda: len(listener.messages) == 1, timeout_s=20)
        assert not listener.closed


async def test_links_share_a_budget_of_their_own() -> None:
    async with listening(links_received_bytes_max=256 * KIB) as listener:
        greedy, other = await listener.connect(), await listener.connect()
        for link, peer_id in ((greedy, "n1"), (other, "n2")):
            await link.say(hello(peer_id))
            await link.answer()
        await greedy.say(announced(4096 * KIB) + bytes(300 * KIB))
        await until(lambda: listener.gate.received_bytes >= 300 * KIB)
        other.writer.write(b"".join(native.encode(PUSH, [bytes(600 * KIB)])))
        await until(lambda: listener.gate.received_bytes > 364 * KIB)
        assert not listener.messages

        greedy.writer.close()

        await until(lambda: len(listener.messages) == 1)
        await until(lambda: listener.gate.received_bytes == 0)


async def test_what_a_member_sent_with_its_hello_counts_as_a_links() -> None:
    async with listening(received_bytes_max=256 * KIB) as listener:
        greedy, member = await listener.connect(), await listener.connect()
        await greedy.say(announced(4096 * KIB) + bytes(300 * KIB))
        await until(lambda: listener.gate.received_bytes > 256 * KIB)

        await member.say(hello("n1") + b"".join(native.encode(PUSH, [bytes(600 * KIB)])))

        await until(lambda: len(listener.messages) == 1)
        greedy.writer.close()
        await until(lambda: listener.gate.received_bytes == 0)
