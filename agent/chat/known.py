"""What the model is told of the session: the system message, the loaded problem, and the facts that survive compaction."""

from __future__ import annotations

from pathlib import Path

from tilecast import prompts
from tilecast.agent.assembly import CPU_LANGUAGE, DEFAULT_LANGUAGE, PLAIN
from tilecast.agent.chat.claims import Ground
from tilecast.agent.chat.fold import SessionState
from tilecast.agent.toolbox.base import Refusal
from tilecast.agent.toolbox.box import Toolbox, fact_lines
from tilecast.sandbox.hardware import find_hardware
from tilecast.sandbox.languages import language_of
from tilecast.sandbox.problem import Problem

MOST_FACTS = 40
RESULT_CHARACTERS, FRESH_MESSAGES = 1200, 6


def system_message(language: str = "triton") -> str:
    """The system message with the guide to a language."""
    return prompts.render("chat_system", guide=prompts.guide(language))


def language_for(problem: Problem, device: str) -> str:
    """Whose guide the model gets: that of the problem's kernel, else what runs on the device."""
    if problem.kernel is not None:
        own = language_of(Path(problem.kernel).read_text(encoding="utf-8"))
        if own in prompts.languages() and own != PLAIN:
            return own
    return CPU_LANGUAGE if device == "cpu" else DEFAULT_LANGUAGE


def standing(box: Toolbox) -> str:
    """Where things stand, for the model: folder, problem, kernel, best so far."""
    loaded, best = box.work.loaded, box.best
    lines = [f"working folder: {box.work.files.root}"]
    if loaded is None:
        lines.append("no problem is loaded yet")
    else:
        lines.append(f"problem: {loaded.name} ({box.work.files.name_of(loaded.path)})")
        if loaded.kernel is not None:
            language = language_of(Path(loaded.kernel).read_text(encoding="utf-8"))
            lines.append(f"kernel to start from: {box.work.files.name_of(loaded.kernel)} ({language})")
    if best is not None:
        lines += ["best so far:", *fact_lines(best)]
    return "\n".join(["[Where things stand]", *lines])


def facts_text(box: Toolbox, state: SessionState) -> str:
    """What has to survive when the conversation is shortened: best, results, failures with their reasons, files, budget."""
    lines: list[str] = []
    if box.work.loaded is not None:
        lines.append(f"- problem: {box.work.loaded.name} ({box.work.files.name_of(box.work.loaded.path)})")
    if box.best is not None:
        lines += ["- best so far:", *fact_lines(box.best)]
    if state.facts:
        lines.append("- what was found out, oldest first:")
        lines += [line for fact in state.facts[-MOST_FACTS:] for line in fact_lines(fact)[:4]]
    if state.changes:
        lines.append(f"- files written: {', '.join(dict.fromkeys(change.path for change in state.changes))}")
    first = next((text for who, text in state.said if who == "you"), "")
    lines.append(f"- the user's first request: {first[:500]}")
    return prompts.render("chat_facts", facts="\n".join(lines))


def ground_of(box: Toolbox) -> Ground:
    """What claims are held against now: facts, files as they are, and the device's peaks."""
    sources = {}
    for name in {fact.candidate for fact in box.facts}:
        try:
            text = box.work.files.read(name)
        except Refusal:
            continue
        sources[name] = text
    return Ground([*box.facts], sources, _peaks(box))


def _peaks(box: Toolbox) -> list[float]:
    if box.work.loaded is None or not box.work.is_open:
        return []
    known = find_hardware(box.work.sandbox.device.name)
    if known is None:
        return []
    return [known.bandwidth_gbs, *(t * 1e3 for t in (known.fp32_tflops, known.fp16_tflops, known.fp8_tflops))]
