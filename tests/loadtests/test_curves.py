import json
import xml.etree.ElementTree as ET

from loadtests.curves import joined, main, read_log


def write_run(folder, events):
    folder.mkdir()
    (folder / "log.jsonl").write_text("".join(json.dumps(event) + "\n" for event in events))
    return folder


def loss(step, value):
    return {"event": "loss", "step": step, "target_tokens": 1_000_000 * step, "loss": value}


def dev(step, bleu):
    scores = {"everyday_loss": 2.0, "everyday_bleu": bleu, "other_loss": 3.0, "other_bleu": bleu / 2}
    return {"event": "dev", "step": step, "target_tokens": 1_000_000 * step, **scores}


def test_a_step_that_was_taken_again_counts_once(tmp_path):
    first, later = loss(2, 5.0), loss(2, 4.0)
    run = write_run(tmp_path / "run", [{"event": "start", "step": 0}, loss(1, 6.0), first, loss(3, 9.0), later])
    assert [event["loss"] for event in read_log(run)] == [6.0, 4.0, 9.0]


def test_tokens_are_counted_on_from_run_to_run():
    events = joined([[loss(1, 6.0), dev(2, 10.0)], [dev(1, 20.0)]])
    assert [event["millions"] for event in events] == [1, 2, 3]


def test_both_curves_are_files_that_any_browser_reads(tmp_path):
    first = write_run(tmp_path / "a", [loss(step, 6 - step / 10) for step in range(1, 40)] + [dev(39, 10.0)])
    second = write_run(tmp_path / "b", [dev(5, 40.0)])
    main([str(first), str(second), "--output", str(tmp_path / "out" / "en-fr")])
    for what, names in (("loss", 3), ("bleu", 2)):
        root = ET.parse(tmp_path / "out" / f"en-fr-{what}.svg").getroot()
        assert root.tag == "{http://www.w3.org/2000/svg}svg"
        texts = [element.text for element in root.iter("{http://www.w3.org/2000/svg}text")]
        assert len([text for text in texts if text in ("dev, everyday", "dev, all other", "training")]) == names
        dots = len(list(root.iter("{http://www.w3.org/2000/svg}circle")))  # of two dev points, two kinds each
        assert dots == (4 if what == "bleu" else 4 + 39)
