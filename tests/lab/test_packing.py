"""Packed and padded batches: the same loss and gradients as separate documents, no leak, nothing cut."""

from __future__ import annotations

from itertools import pairwise

import pytest
import torch
import torch.nn.functional as F

from hwlessons.facts.shapes import TransformerShape
from hwlessons.lab.corpus import Paragraphs
from hwlessons.lab.memory import track
from hwlessons.lab.packing import PADDING_ID, PackedWindows, pack, pad
from hwlessons.lab.training import IGNORED_TARGET, ShuffledBatches, evaluate, num_supervised, train
from hwlessons.lab.transformer import Transformer

WINDOW = 32
GPT = TransformerShape.gpt2_like(num_layers=2, width=32, num_heads=4, vocab_size=256, max_positions=WINDOW)
LLAMA = TransformerShape.llama_like(num_layers=2, width=32, num_heads=4, vocab_size=256, ffn_width=48, num_kv_heads=2)
DOCUMENTS = [torch.randint(1, 256, (n,), generator=torch.Generator().manual_seed(n)) for n in (9, 20, 1, 12, 30, 11)]
NUM_SUPERVISED = sum(len(document) - 1 for document in DOCUMENTS)
STYLES = pytest.mark.parametrize("style", [GPT, LLAMA], ids=["learned", "rotary"])
ATTENTIONS = pytest.mark.parametrize("attention", ["fused", "materialised"])


def make(style, attention="fused", dtype=torch.float64, **options):
    torch.manual_seed(0)
    return Transformer(style, attention=attention, **options).to(dtype)


def summed_loss(logits, targets):
    return F.cross_entropy(logits.flatten(0, 1), targets.flatten(), reduction="sum")


def gradient(model, batches):
    """Loss and gradient per supervised token of several batches, in fp64."""
    model.zero_grad()
    num_tokens = sum(num_supervised(batch.targets) for batch in batches)
    loss = sum(summed_loss(model(batch.tokens, batch.document_ids), batch.targets) for batch in batches) / num_tokens
    loss.backward()
    return loss.item(), torch.cat([p.grad.flatten().double() for p in model.parameters()])


def alone(model):
    """Loss and gradient per supervised token of every document by itself, without any mask of documents."""
    model.zero_grad()
    losses = [summed_loss(model(d[None, :-1]), d[None, 1:]) for d in DOCUMENTS if len(d) > 1]
    loss = sum(losses) / NUM_SUPERVISED
    loss.backward()
    return loss.item(), torch.cat([p.grad.flatten().double() for p in model.parameters()])


@STYLES
@ATTENTIONS
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
@pytest.mark.parametrize("lay_out", [lambda d: pack(d, WINDOW), pad], ids=["packed", "padded"])
def test_loss_and_gradients_are_those_of_separate_documents(style, attention, dtype, lay_out):
    model, bound = make(style, attention, dtype), NUM_SUPERVISED * torch.finfo(dtype).eps
    (loss, found), (expected_loss, expected) = gradient(model, [lay_out(DOCUMENTS)]), alone(model)
    assert loss == pytest.approx(expected_loss, rel=bound)
    assert (found - expected).abs().max() <= bound * expected.abs().max()


@STYLES
@ATTENTIONS
def test_no_document_sees_its_neighbour(style, attention):
    model, batch = make(style, attention), pack(DOCUMENTS, WINDOW)
    before = model(batch.tokens, batch.document_ids)
    for changed in range(len(DOCUMENTS)):
        is_changed = batch.document_ids == changed
        tokens = torch.where(is_changed, (batch.tokens + 1) % 256, batch.tokens)
        after = model(tokens, batch.document_ids)
        assert torch.equal(after[~is_changed], before[~is_changed])
        assert not torch.allclose(after[is_changed], before[is_changed])


@STYLES
def test_the_faults_are_seen(style):
    model, batch = make(style), pack(DOCUMENTS, WINDOW)
    right = model(batch.tokens, batch.document_ids)
    only_causal = model(batch.tokens, positions=batch.positions)
    running_on = torch.arange(WINDOW).expand_as(batch.tokens)
    no_restart = model(batch.tokens, batch.document_ids, positions=running_on)
    first = batch.positions == torch.arange(WINDOW)  # the first document of each row is right in all of them
    for wrong in (only_causal, model(batch.tokens)):
        assert torch.allclose(wrong[first], right[first], rtol=1e-12)
        assert not torch.allclose(wrong[~first], right[~first], rtol=1e-3)
    # rotary scores depend on distances alone, so there a document may begin anywhere
    assert torch.allclose(no_restart, right, rtol=1e-4, atol=1e-5) == (style is LLAMA)


@STYLES
@ATTENTIONS
def test_documents_over_the_whole_sequence_are_the_default(style, attention):
    model, tokens = make(style, attention), torch.stack([DOCUMENTS[4], DOCUMENTS[4].flip(0)])
    one = torch.zeros_like(tokens)
    torch.testing.assert_close(model(tokens, one), model(tokens), rtol=1e-12, atol=1e-14)


@STYLES
@ATTENTIONS
def test_checkpointing_and_autocast_take_the_mask(style, attention):
    batch = pack(DOCUMENTS, WINDOW)
    (_, plain), (_, checkpointed) = (
        gradient(make(style, attention, checkpointing=on).train(), [batch]) for on in (False, True)
    )
    torch.testing.assert_close(checkpointed, plain)
    model = make(style, attention, torch.float32)
    exact = model(batch.tokens, batch.document_ids)
    with torch.autocast("cpu", torch.bfloat16):
        rounded = model(batch.tokens, batch.document_ids)
    assert rounded.isfinite().all()
    torch.testing.assert_close(rounded.float(), exact, rtol=0.05, atol=0.02)


@STYLES
@ATTENTIONS
def test_one_mask_is_kept_for_all_blocks(style, attention):
    batch = pack(DOCUMENTS, WINDOW)
    rows, saved = len(batch.tokens), []

    def build_with(document_ids):
        model = make(style, attention, torch.float32)

        def step():
            summed_loss(model(batch.tokens, document_ids), batch.targets).backward()
            model.zero_grad()

        return model, torch.optim.SGD(model.parameters()), step

    for document_ids in (None, batch.document_ids):
        saved.append(track(lambda ids=document_ids: build_with(ids)).saved_activation_bytes)
    mask = 4 * rows * WINDOW**2 if attention == "fused" else (rows - 1) * WINDOW**2  # one byte for a bool
    positions = 8 * WINDOW if style is GPT else 4 * 2 * WINDOW * style.head_dim  # now one for each row
    assert saved[1] - saved[0] == mask + (rows - 1) * positions


def test_layout_token_by_token():
    batch = pack(DOCUMENTS, WINDOW)
    assert batch.tokens.dtype == batch.targets.dtype == batch.document_ids.dtype == torch.int64
    for index, document in enumerate(DOCUMENTS):
        here = batch.document_ids == index
        assert torch.equal(batch.tokens[here], document)
        assert batch.targets[here].tolist() == [*document[1:].tolist(), IGNORED_TARGET]
        assert batch.positions[here].tolist() == list(range(len(document)))
    padding = batch.document_ids == PADDING_ID
    assert (batch.targets[padding] == IGNORED_TARGET).all()
    assert (~padding).sum() == sum(map(len, DOCUMENTS)) and num_supervised(batch.targets) == NUM_SUPERVISED
    assert torch.equal(batch.mask[0], batch.mask[0] | torch.ones(WINDOW, WINDOW).triu(1).bool())


def test_padding_is_packing_one_document_a_row():
    padded, packed = pad(DOCUMENTS, WINDOW), pack(DOCUMENTS, WINDOW, [[i] for i in range(len(DOCUMENTS))])
    assert all(torch.equal(a, b) for a, b in zip(padded, packed, strict=True))
    assert pad(DOCUMENTS).tokens.shape == (6, 30)
    moved = padded.to("cpu")
    assert moved.document_ids.shape == padded.document_ids.shape


def test_the_loop_trains_on_packed_windows_and_counts_their_tokens():
    documents = [text for text in Paragraphs("evaluation").tokens if len(text) <= WINDOW]
    windows = PackedWindows(documents, WINDOW)
    model = make(GPT, dtype=torch.float32)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    an_epoch = -(-len(windows) // 4)
    before = evaluate(model, [windows.batch]).loss
    record = train(model, optimizer, ShuffledBatches(windows, 4), num_optimizer_steps=an_epoch)
    assert record.num_tokens == sum(len(document) - 1 for document in documents)
    after = evaluate(model, [windows.batch])
    assert after.loss < before - 0.5 and after.num_tokens == record.num_tokens


def test_the_loop_masks_what_it_trains_and_evaluates_on():
    batch = pack(DOCUMENTS, WINDOW)
    model = make(GPT)
    expected_loss, expected = alone(make(GPT))
    assert evaluate(model, [batch]).loss == pytest.approx(expected_loss, rel=1e-12)
    before = torch.cat([p.detach().flatten() for p in model.parameters()])
    record = train(model, torch.optim.SGD(model.parameters(), lr=1.0), [batch], num_optimizer_steps=1)
    step = before - torch.cat([p.detach().flatten() for p in model.parameters()])
    assert (step - expected).abs().max() <= NUM_SUPERVISED * 2.3e-16 * max(1, expected.abs().max())
    assert record.num_tokens == NUM_SUPERVISED


def test_a_batch_without_a_supervised_token_is_refused():
    single = pack([document[:1] for document in DOCUMENTS], WINDOW)
    assert num_supervised(single.targets) == 0
    model = make(GPT)
    with pytest.raises(ValueError, match="optimizer step 1 must hold a supervised token, got none"):
        train(model, torch.optim.SGD(model.parameters()), [single], num_optimizer_steps=1)
    with pytest.raises(ValueError, match="must hold a supervised token to evaluate on, got none"):
        evaluate(model, [single])


def test_nothing_is_cut():
    with pytest.raises(ValueError, match=r"document 1 must fit into window \(19 tokens\), got 20 tokens"):
        pack(DOCUMENTS, 19)
    with pytest.raises(ValueError, match=r"length must hold row 1 whole, got 19 for documents \[1\] of 20 tokens"):
        pad(DOCUMENTS, 19)
    with pytest.raises(ValueError, match=r"window must hold row 0 whole, got 28 for documents \[0, 1\] of 29 tokens"):
        pack(DOCUMENTS, 28, [[0, 1]])
    with pytest.raises(ValueError, match="documents must hold at least one document, got none"):
        pad([])
    for bad, size in ((torch.zeros(0), (0,)), (torch.zeros(2, 3), (2, 3))):
        with pytest.raises(ValueError, match=rf"document 1 must be one row of tokens, got the shape \({size[0]}"):
            pack([DOCUMENTS[0], bad], WINDOW)


def test_shapes_must_agree():
    batch = pack(DOCUMENTS, WINDOW)
    model = make(GPT)
    for options in ({"document_ids": batch.document_ids[:1]}, {"positions": batch.positions[:1]}):
        (name,) = options
        with pytest.raises(ValueError, match=rf"{name} must have the shape of tokens \(\d, 32\), got \(1, 32\)"):
            model(batch.tokens, **options)


def test_ids_of_a_row_are_in_order():
    ids = pack(DOCUMENTS, WINDOW).document_ids
    for row in ids.tolist():
        starts = [b for a, b in pairwise([None, *row]) if a != b]
        assert len(starts) == len(set(starts))
