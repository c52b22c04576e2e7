"""The result store: nothing lost, nothing twice, nothing corrupt believed."""

from __future__ import annotations

import hashlib
import json
import math
import subprocess
import sys
import textwrap
import threading

import pytest

from edgewise.experiments.protocol import Record, Run
from edgewise.experiments.store import CorruptRecordWarning, Store, StoreError, decode, encode

RUN = Run("knn-lds", "wine", {"tau": 5, "eta": 0.1}, seed=3, labels="equal")


def full_record(run=RUN):
    return Record(
        run,
        accuracies={"train": 1.0, "validation": 0.9, "early_stopping": 1.0, "test": 0.925676},
        losses={"validation": 0.25, "early_stopping": 0.125},
        expected_edges=1234.5,
        details={"outer_iterations": 12},
        seconds=1.25,
        peak_memory_mb=321.0,
        versions={"torch": "2.13.0", "python": "3.11.7"},
        threads=1,
        host_threads=2,
        finished="2026-01-02T03:04:05Z",
    )


def path_of(store, run=RUN):
    return store.folder / run.dataset / f"{run.method}.jsonl"


@pytest.fixture
def store(tmp_path):
    return Store(tmp_path / "records")


def test_a_record_comes_back_whole(store):
    assert store.add(full_record())
    assert Store(store.folder).get(RUN) == full_record()
    assert store.records() == [full_record()]


def test_lines_are_sorted_json_on_one_line_each(store):
    for seed in range(3):
        store.add(Record(Run("knn-lds", "wine", seed=seed)))
    lines = path_of(store).read_text().splitlines()
    assert len(lines) == 3
    for line in lines:
        body = json.loads(line)
        assert list(body) == sorted(body)
        assert {"key", "check", "method", "seed"} <= set(body)


def test_numbers_are_rounded_and_unknown_ones_become_null():
    record = decode(
        encode(
            Record(
                RUN,
                accuracies={"test": 1 / 3},
                losses={"test": math.nan, "validation": math.inf},
                expected_edges=math.nan,
                seconds=1 / 3,
            )
        )
    )
    assert record.accuracies == {"test": 0.333333}
    assert record.losses == {"test": None, "validation": None}
    assert record.expected_edges is None
    assert record.seconds == 0.333


def test_arrays_are_refused(store):
    with pytest.raises(ValueError, match="arrays"):
        store.add(Record(RUN, details={"curve": list(range(20_000))}))
    assert len(store) == 0


def test_a_good_record_is_kept_once_and_never_replaced(store):
    assert store.add(Record(RUN, accuracies={"test": 0.5}))
    assert not store.add(Record(RUN, accuracies={"test": 0.9}))
    assert not store.add(Record(RUN, status="failed", reason="late"))
    assert not Store(store.folder).add(Record(RUN, accuracies={"test": 0.9}))
    assert [r.accuracies for r in store] == [{"test": 0.5}]
    assert len(path_of(store).read_text().splitlines()) == 1


def test_a_failed_record_gives_way(store):
    other = Record(Run(RUN.method, RUN.dataset, seed=9))
    assert store.add(Record(RUN, status="failed", reason="out of memory"))
    assert store.add(other)
    assert store.add(Record(RUN, status="failed", reason="out of luck"))
    assert store.get(RUN).reason == "out of luck"
    reader = Store(store.folder)
    assert reader.get(RUN).status == "failed"
    assert store.add(full_record())
    assert reader.get(RUN) == full_record()  # through the file's replacement
    assert reader.get(other.run) == other
    assert len(path_of(store).read_text().splitlines()) == 2
    assert [p.name for p in path_of(store).parent.iterdir()] == ["knn-lds.jsonl"]


def test_readers_follow_other_writers(store):
    reader = Store(store.folder)
    assert reader.records() == []
    for seed in range(4):
        run = Run("knn-lds", "wine", seed=seed)
        store.add(Record(run))
        assert reader.get(run).run == run
    assert len(reader) == 4


def test_records_can_be_selected(store):
    for method in ("rf", "lp"):
        for dataset in ("wine", "cancer"):
            store.add(Record(Run(method, dataset)))
    assert [r.run.dataset for r in store.records(method="rf")] == ["cancer", "wine"]
    assert [r.run.method for r in store.records(dataset="wine")] == ["lp", "rf"]


def test_names_that_are_no_file_names_are_kept_apart(store):
    names = ["../../etc/passwd", "data/a.csv", "data_a_csv", "a\n", ".", "ünï", "x" * 300]
    for name in names:
        assert store.add(Record(Run("rf", name)))
        assert store.add(Record(Run(name, "wine")))
    assert {r.run.dataset for r in Store(store.folder).records(method="rf")} == set(names)
    assert all(p.resolve().is_relative_to(store.folder.resolve())
               for p in store.folder.rglob("*"))  # fmt: skip
    assert len(list(store.folder.glob("*/*.jsonl"))) == 2 * len(names)


@pytest.mark.parametrize("cut", [1, 10, 300])
def test_a_torn_last_line_is_ignored_and_repaired(store, cut):
    first, second = (Record(Run("knn-lds", "wine", seed=seed)) for seed in (0, 1))
    store.add(first)
    store.add(second)
    data = path_of(store).read_bytes()
    assert len(encode(second)) > cut
    path_of(store).write_bytes(data[: -1 - cut])
    assert Store(store.folder).records() == [first]
    assert Store(store.folder).add(second)
    assert path_of(store).read_bytes() == data


def test_a_whole_last_line_without_its_end_counts(store):
    first, second = (Record(Run("knn-lds", "wine", seed=seed)) for seed in (0, 1))
    store.add(first)
    path_of(store).write_bytes(path_of(store).read_bytes()[:-1])
    assert Store(store.folder).records() == [first]
    assert Store(store.folder).add(second)
    assert Store(store.folder).records() == [first, second]
    assert len(path_of(store).read_text().splitlines()) == 2


def test_a_long_foreign_tail_does_not_swallow_the_next_record(store):
    path_of(store).parent.mkdir(parents=True)
    path_of(store).write_bytes(b"x" * 200_000)
    store.add(full_record())
    assert Store(store.folder).records() == [full_record()]


def corruptions():
    line = encode(full_record())
    body = json.loads(line)
    yield "digit", line.replace("0.925676", "0.955676")
    yield "conflict", "<<<<<<< HEAD"
    yield "no object", "[1, 2]"
    yield "empty", ""
    yield "not text", "\udcff\udcfe"
    yield "unknown field", json.dumps({**body, "extra": 1})
    yield "half", line[: len(line) // 2]
    yield "null bytes", "\0" * 40


@pytest.mark.parametrize("bad", list(dict(corruptions()).values()), ids=list(dict(corruptions())))
def test_corrupt_lines_are_named_and_skipped(store, bad):
    before, after = (Record(Run("knn-lds", "wine", seed=seed)) for seed in (0, 1))
    store.add(before)
    with path_of(store).open("ab") as file:
        file.write(bad.encode(errors="surrogateescape") + b"\n")
        file.write(encode(after).encode() + b"\n")
    reader = Store(store.folder)
    with pytest.warns(CorruptRecordWarning, match=r"wine/knn-lds\.jsonl:2: skipped"):
        assert reader.records() == [before, after]
    assert reader.records() == [before, after]  # warned once


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        ({"seed": 4}, "key does not belong"),
        ({"seed": "four"}, "not a record"),
        ({"surprise": 1}, "not a record"),
    ],
)
def test_a_wrong_record_with_a_right_checksum_is_refused(change, problem):
    body = {**json.loads(encode(full_record())), **change}
    del body["check"]
    text = json.dumps(body, sort_keys=True, separators=(",", ":")).replace("1.0,", "1,")
    body["check"] = hashlib.sha256(text.encode()).hexdigest()[:8]
    with pytest.raises(ValueError, match=problem):
        decode(json.dumps(body))


def test_replacing_a_record_keeps_the_corrupt_lines_of_others_for_inspection(store):
    store.add(Record(RUN, status="failed", reason="once"))
    with path_of(store).open("a") as file:
        file.write("not a record\n")
    with pytest.warns(CorruptRecordWarning):
        store.add(full_record())
    assert path_of(store).read_text() == "not a record\n" + encode(full_record()) + "\n"


def test_tidy_orders_and_cleans(store):
    records = [Record(Run("knn-lds", "wine", seed=seed)) for seed in (2, 0, 1)]
    for record in records:
        store.add(record)
    with path_of(store).open("a") as file:
        file.write("rubbish\n" + encode(records[0]) + "\n")
    with pytest.warns(CorruptRecordWarning):
        store.tidy()
    lines = path_of(store).read_text().splitlines()
    assert [decode(line).run.seed for line in lines] == [0, 1, 2]


def test_a_folder_that_cannot_be_written_is_a_clear_error(tmp_path):
    (tmp_path / "records").write_text("a file in the way")
    with pytest.raises(StoreError, match=r"cannot write .* make the folder writable"):
        Store(tmp_path / "records").add(full_record())
    assert (tmp_path / "records").read_text() == "a file in the way"


def test_a_full_disk_leaves_earlier_records_intact_and_nothing_half_written(store):
    """A limit on the size of files stands for the full disk: writes stop half-way there too."""
    store.add(full_record())
    size = path_of(store).stat().st_size
    script = f"""
        import resource, signal
        from edgewise.experiments.protocol import Record, Run
        from edgewise.experiments.store import Store, StoreError
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, ({size + 100}, {size + 100}))
        try:
            Store({str(store.folder)!r}).add(Record(Run("knn-lds", "wine", seed=77)))
        except StoreError as error:
            print(error)
    """
    out = python(script)
    assert "make room and start again" in out
    assert path_of(store).stat().st_size == size
    assert Store(store.folder).records() == [full_record()]


def test_threads_share_a_store(store):
    def write(offset):
        for seed in range(10):
            store.add(Record(Run("rf", "wine", seed=seed + offset)))

    threads = [threading.Thread(target=write, args=(offset,)) for offset in (0, 5, 10)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [r.run.seed for r in Store(store.folder)] == list(range(20))


def python(script, *arguments):
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", textwrap.dedent(script), *arguments],
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


MASSACRE = """
import json, os, random, select, signal, sys, time
from edgewise.experiments.protocol import Record, Run
from edgewise.experiments.store import Store
folder, count = sys.argv[1], int(sys.argv[2])
rng = random.Random(0)

def write(pipe):
    store = Store(folder)
    for seed in range(count):
        # Two methods; every third run fails first, so that files are replaced as well.
        run = Run(("rf", "lp")[seed % 2], "wine", {"pad": "x" * 300}, seed=seed)
        if seed % 3 == 0 and store.get(run) is None:
            store.add(Record(run, status="failed", reason="first"))
        store.add(Record(run, accuracies={"test": seed / 1000}))
        os.write(pipe, b"%d\\n" % seed)  # promised: from here on it must be there

def start():
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        write(writing)
        os._exit(0)
    os.close(writing)
    return child, reading

promised, killed = set(), 0
for is_last in (False,) * 6 + (True,):
    writers = [start() for _ in range(4)]
    if not is_last:
        for child, _ in writers:
            time.sleep(rng.uniform(0, 0.1))
            os.kill(child, signal.SIGKILL)
    for child, reading in writers:
        with open(reading) as file:
            promised |= {int(seed) for seed in file.read().split()}
        killed += os.waitpid(child, 0)[1] == signal.SIGKILL
    # After each massacre all that was promised is there, and no line is corrupt (-W error).
    there = {r.run.seed for r in Store(folder) if r.status == "ok"}
    assert promised <= there, promised - there
print(killed)
"""


def test_four_writers_killed_at_random_lose_and_double_nothing(tmp_path):
    count = 150
    folder = tmp_path / "records"
    killed = int(python(MASSACRE, str(folder), str(count)))
    assert killed > 4  # or the test tests nothing
    assert sorted(r.run.seed for r in Store(folder)) == list(range(count))
    lines = [line for p in folder.glob("*/*.jsonl") for line in p.read_bytes().splitlines()]
    assert len(lines) == count  # exactly once, on disk too
    assert {decode(line).status for line in lines} == {"ok"}
