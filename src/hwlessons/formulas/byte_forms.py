"""Bytes as whole multiples of products of sizes: what a tape counts where sizes stay symbols."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from fractions import Fraction
from functools import cache


class ByteForm:
    """A sum such as 4 * b h s + 8 * b s, with the products of symbols in alphabetical order.

    Half sizes ("h/2") and numbers ("2") become part of the multiple. Never changed once it is made.
    """

    __slots__ = ("terms",)

    def __init__(self, terms: Mapping[str, int] | None = None) -> None:
        self.terms = {product: number for product, number in (terms or {}).items() if number}

    @staticmethod
    @cache
    def of(dims: str, itemsize: int) -> ByteForm:
        """The bytes of a tensor.

        Raises:
            ValueError: if its halves make no whole number of bytes.
        """
        number, symbols = Fraction(itemsize), []
        for symbol in dims.split():
            if symbol.isdigit():
                number *= int(symbol)
            else:
                number /= 2 if symbol.endswith("/2") else 1
                symbols.append(symbol.removesuffix("/2"))
        if number.denominator > 1:
            raise ValueError(f"{itemsize} bytes of {dims} are no whole number of bytes")
        return ByteForm({" ".join(sorted(symbols)): int(number)})

    def __add__(self, other: ByteForm | int) -> ByteForm:
        if not isinstance(other, ByteForm):
            return self if other == 0 else self + ByteForm({"": other})
        total = ByteForm()
        total.terms = self.terms.copy()
        for product, number in other.terms.items():
            if both := total.terms.get(product, 0) + number:
                total.terms[product] = both
            else:
                del total.terms[product]
        return total

    __radd__ = __add__

    def __mul__(self, number: int) -> ByteForm:
        return ByteForm({product: number * own for product, own in self.terms.items()})

    __rmul__ = __mul__

    def __neg__(self) -> ByteForm:
        return self * -1

    def __sub__(self, other: ByteForm) -> ByteForm:
        return self + -other

    def __eq__(self, other: object) -> bool:
        return isinstance(other, ByteForm) and self.terms == other.terms

    def __hash__(self) -> int:
        return hash(frozenset(self.terms.items()))

    def __repr__(self) -> str:
        return " + ".join(f"{number} * {product}".rstrip(" *") for product, number in self.terms.items()) or "0"

    def times(self, symbol: str) -> ByteForm:
        """Every product once more times a symbol."""
        return ByteForm({" ".join(sorted([*product.split(), symbol])): n for product, n in self.terms.items()})

    def value(self, sizes: Mapping[str, int]) -> int:
        """The bytes at given sizes."""
        total = 0
        for product, number in self.terms.items():
            for symbol in product.split():
                number *= sizes[symbol]
            total += number
        return total


def shifted(product: str, at_least: Mapping[str, str]) -> Counter[str]:
    """A product rewritten so that every symbol left may be 0: each size is its least value and an excess.

    Args:
        product: symbols, each at least 1.
        at_least: for some symbols, the product or number that they are at least (the others: 1); "a": "g" says that a
            is no less than g. A symbol that equals a product has "=" in front.
    """
    total = Counter({"": 1})
    for symbol in product.split():
        least = at_least.get(symbol, "")
        factor = Counter({"": int(least)}) if least.isdigit() else shifted(least.removeprefix("="), at_least)
        if not least.startswith("="):
            factor[f"{symbol}'"] += 1
        grown: Counter[str] = Counter()
        for left, number in total.items():
            for right, more in factor.items():
                grown[" ".join(sorted([*left.split(), *right.split()]))] += number * more
        total = grown
    return total
