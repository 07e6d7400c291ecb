"""Bugs that replicated logs have had, to be put back in: the simulation must catch each.

A judge that can't fail proves nothing. Each bug here takes one fix out, or breaks one rule, for the
time of a `with` block. `tests/unit/dledger/raft/test_simulation.py` runs for each a seed that
catches it; this command searches for such seeds again, after a change that moved them. Chance comes
in separate streams, so that a new fault or knob moves few:

    python -m dledger.testing.simulation --planted all --seeds 0-500
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass

from dledger.testing.planted import due, joining, members, proof, raft, reads, repair, storage


@dataclass(frozen=True, slots=True)
class PlantedBug:
    """A bug and how to put it in.

    `holes`: the numbers of those holes in `docs/explanation/raft-holes.md` that it opens again;
    empty for others. `seed`: one that catches it in a group of `nodes`. Without one it breaks no
    invariant by itself, or hardly ever: only a directed test shows it.
    """

    name: str
    holes: tuple[int, ...]
    plant: Callable[[], AbstractContextManager[object]]
    nodes: int = 3
    seed: int | None = None


PLANTED = (
    PlantedBug("send again what is in flight", (1,), raft.send_again),
    PlantedBug("truncate matching entries", (1,), raft.truncate_matching, seed=24),
    PlantedBug(
        "send again and truncate matching entries", (1,), raft.send_again_and_truncate, seed=0
    ),
    PlantedBug("count stale acknowledgements", (2,), raft.count_stale_acks, nodes=5, seed=186),
    PlantedBug("act on what was garbled", (), raft.act_on_what_was_garbled, seed=126),
    PlantedBug("trust the library's reset hints", (3,), raft.trust_reset_hints, seed=1),
    PlantedBug("take the commit index unclamped", (1, 4), raft.take_commit_unclamped, seed=96),
    PlantedBug("acknowledge before the sync", (7,), raft.acknowledge_before_sync, seed=0),
    PlantedBug("count the leader's copy before its sync", (7,), raft.count_own_copy_early, seed=0),
    PlantedBug("forget term and vote", (7,), raft.forget_term_and_vote, seed=1),
    PlantedBug("vote again after a restart", (7,), raft.vote_again, nodes=5, seed=16),
    PlantedBug("accept a vote file older than the log", (7,), raft.accept_old_vote),
    PlantedBug("trust a commit index beyond the log", (8,), raft.trust_commit_beyond_log, seed=0),
    PlantedBug("elect without asking", (13,), raft.elect_without_asking),
    PlantedBug("never check the quorum", (14,), raft.never_check_quorum, seed=19),
    PlantedBug("take over without an election", (), raft.take_over_without_an_election, seed=0),
    PlantedBug("hand over for ever", (), raft.hand_over_for_ever, seed=8),
    PlantedBug("append what was refused", (16,), raft.append_what_was_refused, seed=0),
    PlantedBug("never tell of lost leadership", (16,), raft.never_tell_of_lost_leadership, seed=5),
    PlantedBug("count a vote twice", (), raft.count_a_vote_twice, nodes=5, seed=7),
    PlantedBug("vote for a shorter log", (), raft.vote_for_a_shorter_log, seed=0),
    PlantedBug(
        "commit an older term's entry by counting", (), raft.commit_by_counting, nodes=5, seed=2
    ),
    PlantedBug("count less than a majority", (), raft.count_less_than_a_majority, nodes=5, seed=0),
    PlantedBug("acknowledge the whole log", (), raft.acknowledge_the_whole_log, seed=44),
    PlantedBug("keep conflicting entries", (), raft.keep_conflicting_entries, seed=0),
    PlantedBug("serve before the no-op is applied", (), raft.serve_early, seed=0),
    PlantedBug("answer before the commit", (), raft.answer_early, seed=0),
    PlantedBug("apply before the commit", (), raft.apply_early, seed=0),
    PlantedBug("sync nothing", (), storage.sync_nothing, seed=0),
    PlantedBug("call a failed sync good", (), storage.call_a_failed_sync_good, seed=31),
    PlantedBug("vouch for what a cut replaced", (), storage.vouch_for_what_a_cut_replaced, seed=88),
    PlantedBug(
        "vouch for what a killed process left", (), storage.vouch_for_unsynced_leftovers, seed=1
    ),
    PlantedBug("forget the folder's sync", (), storage.forget_the_folder, seed=0),
    PlantedBug("rely on names that were not synced", (), storage.rely_on_unsynced_names),
    PlantedBug("use a removed segment", (), storage.use_a_removed_segment),
    PlantedBug(
        "replace a segment that has entries", (), storage.replace_a_segment_that_has_entries
    ),
    PlantedBug(
        "use a segment that a cut is removing", (), storage.use_a_segment_that_a_cut_is_removing
    ),
    PlantedBug(
        "take a name that was not synced", (), storage.take_a_name_that_was_not_synced, seed=30
    ),
    PlantedBug("vouch for no new segment", (), storage.vouch_for_no_new_segment),
    PlantedBug("vouch for what a cut removed", (), storage.vouch_for_what_a_cut_removed),
    PlantedBug("raise watermarks", (), storage.raise_watermarks, nodes=5, seed=272626922),
    PlantedBug("keep the watermark in a cut", (), storage.keep_the_watermark, seed=17),
    PlantedBug(
        "believe a stale checkpoint", (), storage.believe_a_stale_checkpoint, nodes=5, seed=848
    ),
    PlantedBug("miss no lost segment", (), storage.miss_no_lost_segment, seed=164),
    PlantedBug("note no new segment", (), storage.note_no_new_segment),
    PlantedBug("cut what was durable", (), storage.cut_what_was_durable, seed=2),
    PlantedBug("leave what lies behind the log", (), storage.leave_what_lies_behind),
    PlantedBug("skip the body's checksum", (), storage.skip_the_body_checksum, seed=1),
    PlantedBug("vote with an emptied disk", (), joining.vote_with_an_emptied_disk, seed=61),
    PlantedBug(
        "make eligible only where nobody has a term",
        (),
        joining.make_eligible_only_where_nobody_has_a_term,
    ),
    PlantedBug("vote anew in a new group", (), joining.vote_anew_in_a_new_group),
    PlantedBug("count a learner", (), joining.count_a_learner, seed=3),
    PlantedBug("make a learner eligible at once", (), joining.make_a_learner_eligible_at_once),
    PlantedBug(
        "remove before the head is written", (), joining.remove_before_the_head_is_written, seed=43
    ),
    PlantedBug(
        "begin anew without the first entry",
        (),
        joining.begin_anew_without_the_first_entry,
        seed=221,
    ),
    PlantedBug(
        "apply before the state is there", (), joining.apply_before_the_state_is_there, seed=3
    ),
    PlantedBug("apply under a picture", (), joining.apply_under_a_picture, seed=88),
    PlantedBug("count without the state", (), joining.count_without_the_state, seed=0),
    PlantedBug("take memory for a saved state", (), joining.take_memory_for_a_saved_state, seed=0),
    PlantedBug(
        "become eligible without the state", (), joining.become_eligible_without_the_state, seed=11
    ),
    PlantedBug("give what is not committed", (), repair.give_what_is_not_committed, seed=8),
    PlantedBug("give without a round", (), repair.give_without_a_round, seed=8),
    PlantedBug("chase the leader's end", (), repair.chase_the_leaders_end),
    PlantedBug(
        "write entries before their term", (), repair.write_entries_before_their_term, seed=164
    ),
    PlantedBug(
        "replay what no start has checked", (), repair.replay_what_no_start_has_checked, seed=65
    ),
    PlantedBug("never scrub", (), repair.never_scrub, seed=26),
    PlantedBug("send what has rotted", (), repair.send_what_has_rotted),
    PlantedBug("vouch for rot that was found", (), repair.vouch_for_rot_that_was_found, seed=26),
    PlantedBug("forget what could not be read", (), repair.forget_what_could_not_be_read, seed=8),
    PlantedBug("make a lost file without a mark", (), repair.make_a_lost_file_without_a_mark),
    PlantedBug(
        "take a rotten header for another entry", (), repair.take_a_rotten_header_for_another_entry
    ),
    PlantedBug("fill a short file with zeros", (), repair.fill_a_short_file_with_zeros, seed=15),
    PlantedBug("apply what waited for the state", (), repair.apply_what_waited_for_the_state),
    PlantedBug("answer a read without asking", (), reads.answer_a_read_without_asking, seed=118),
    PlantedBug("join a round under way", (), reads.join_a_round_under_way, seed=9),
    PlantedBug("count any confirmation", (), reads.count_any_confirmation),
    PlantedBug(
        "read before the own term's commit", (), reads.read_before_the_own_terms_commit, seed=7
    ),
    PlantedBug("change twice at once", (15,), members.change_twice_at_once, seed=7),
    PlantedBug(
        "change before the own term is committed",
        (),
        members.change_before_the_own_term_is_committed,
        seed=19,
    ),
    PlantedBug("remove two at once", (), members.remove_two_at_once, seed=7),
    PlantedBug(
        "act only by what is committed", (15,), members.act_only_by_what_is_committed, seed=3
    ),
    PlantedBug("keep what was cut", (15,), members.keep_what_was_cut, seed=68),
    PlantedBug("forget the members", (15,), members.forget_the_members, seed=3),
    PlantedBug("save the members too late", (), members.save_the_members_too_late, seed=7),
    PlantedBug("believe the file alone", (), members.believe_the_file_alone, seed=7),
    PlantedBug(
        "begin anew without the members", (), members.begin_anew_without_the_members, seed=66
    ),
    PlantedBug(
        "take a head whose members were passed over",
        (),
        members.take_a_head_whose_members_were_passed_over,
        seed=7932,
    ),
    PlantedBug("count learners too", (), members.count_learners_too, seed=28),
    PlantedBug("leave one copy", (), members.leave_one_copy, seed=62),
    PlantedBug("sign no role", (), proof.sign_no_role),
    PlantedBug("sign no ids", (), proof.sign_no_ids),
    PlantedBug("sign no nonces", (), proof.sign_no_nonces),
    PlantedBug("sign no group", (), proof.sign_no_group),
    PlantedBug("prove before the dialler", (), proof.prove_before_the_dialler),
    PlantedBug("take any acceptor", (), proof.take_any_acceptor),
    PlantedBug("write fields without lengths", (), proof.write_fields_without_lengths),
    PlantedBug("count no frames", (), proof.count_no_frames),
    PlantedBug("one key for both directions", (), proof.one_key_for_both_directions),
    PlantedBug("check no tags", (), proof.check_no_tags),
    PlantedBug("believe every claim", (), proof.believe_every_claim),
    PlantedBug("elect as the clock goes on", (21,), raft.elect_as_the_clock_goes_on, seed=68),
    PlantedBug("sleep through an election", (), due.sleep_through_an_election, seed=1),
    PlantedBug("sleep through heartbeats", (), due.sleep_through_heartbeats),
    PlantedBug("sleep through a lost quorum", (), due.sleep_through_lost_quorum),
    PlantedBug("forget what was held back", (), due.forget_what_was_held_back),
    PlantedBug("forget a read", (), due.forget_a_read),
    PlantedBug("forget a transfer", (), due.forget_a_transfer),
    PlantedBug("forget a learner", (), due.forget_a_learner),
    PlantedBug("forget what is missing", (), due.forget_what_is_missing),
    PlantedBug("count early acks unnoticed", (), due.count_early_acks_unnoticed),
)


def plant(name: str) -> AbstractContextManager[object]:
    """A context in which the bug of that name is in. Raises KeyError if there is none."""
    return {bug.name: bug for bug in PLANTED}[name].plant()
