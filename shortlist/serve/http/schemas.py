"""What requests and answers look like: checked on the way in, described in the OpenAPI document."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, model_validator

Kind = Literal[
    "top-k",
    "average-k",
    "per-label",
    "average-error",
    "pointwise-error",
    "class-conditional",
    "recall-control",
    "risk-control",
]
Show = Literal["all", "missed", "disagree", "empty", "huge", "rare", "label"]
Sorted = Literal["support", "recall", "size", "name"]
_LARGEST = 1 << 62
_STRICT: ConfigDict = {"extra": "forbid"}


class RuleRequest(BaseModel):
    """A kind of rule and its options; without options, the rule of that kind in the model's folder."""

    model_config = _STRICT
    kind: str = Field(max_length=100, examples=["average-k"])
    options: dict[str, float | bool | str] = Field(default_factory=dict, max_length=20, examples=[{"k": 3}])


class PredictRequest(BaseModel):
    """Rows to answer: texts, features, images, or one held-out row."""

    model_config = _STRICT
    model: str | None = Field(None, description="the name of a model; null asks all that take such rows")
    texts: list[str] | None = Field(None, min_length=1, examples=[["a rose is a rose"]])
    features: list[list[float]] | None = Field(None, min_length=1, description="one list of numbers per row")
    images: list[str] | None = Field(None, min_length=1, description="image files in base64")
    row: int | None = Field(None, ge=0, lt=_LARGEST, description="the number of a held-out row")
    rule: RuleRequest | None = Field(None, description="null is each model's own rule")
    top: int = Field(0, ge=0, le=1000, description="how many of the best labels are listed, in the set or not")
    seed: int | None = Field(None, ge=0, lt=_LARGEST, description="of the random numbers that break ties")

    @model_validator(mode="after")
    def _one_kind(self) -> PredictRequest:
        given = [name for name in ("texts", "features", "images", "row") if getattr(self, name) is not None]
        if len(given) != 1:
            found = " and ".join(given) or "none"
            raise ValueError(f"one of texts, features, images and row must be given; got {found}")
        return self

    @property
    def rows(self) -> int:
        """How many rows."""
        return len(self.texts or self.features or self.images or (0,))


class AuditRequest(BaseModel):
    """A set of labels, by their names, or the true labels of a held-out row."""

    model_config = _STRICT
    model: str
    labels: list[str] | None = Field(None, max_length=10_000)
    row: int | None = Field(None, ge=0, lt=_LARGEST)
    mode: Literal["top-k", "sign"] = Field(
        "top-k", description="whether exactly these labels can have the largest scores, or positive ones"
    )

    @model_validator(mode="after")
    def _one_kind(self) -> AuditRequest:
        if (self.labels is None) == (self.row is None):
            raise ValueError("either labels or row must be given")
        return self


class SaveRequest(RuleRequest):
    """A rule for a model: fitted as `shortlist calibrate` does, and saved as the one that it answers with."""

    model: str
    replace: bool = Field(False, description="whether it may take the place of the model's rule, which is kept")
    dry_run: bool = Field(False, description="only show the command and the Python that do the same")


class Error(BaseModel):
    """Why there is no answer."""

    error: str = Field(description="one sentence")


class RuleInfo(BaseModel):
    """A rule of a model."""

    kind: str
    options: dict[str, Any]
    text: str
    guarantee: str


class TopLabel(BaseModel):
    """One of the best labels of a row."""

    label: str | int
    score: float
    in_set: bool


class RowAnswer(BaseModel):
    """The set of one row, best label first."""

    row: int
    labels: list[str | int]
    scores: list[float]
    top: list[TopLabel] | None = None


class ModelAnswer(BaseModel):
    """The answers of one model."""

    model: str
    rule: RuleInfo
    rows: list[RowAnswer]


class PredictResponse(BaseModel):
    """The answers of all models that were asked."""

    answers: list[ModelAnswer]


class CertificateInfo(BaseModel):
    """The proof of a verdict."""

    kind: str
    words: str
    inside: list[str] = Field(description="labels of the set that the proof is about")
    outside: list[str] = Field(description="labels outside the set that it is about")
    verified: bool = Field(description="whether it was checked again, without the solver that found it")


class NearestInfo(BaseModel):
    """A set that the layer can answer."""

    labels: list[str]
    added: list[str]
    removed: list[str]
    proved: bool = Field(description="whether no set that it can answer is nearer")


class AuditResponse(BaseModel):
    """Whether the output layer can ever answer with a set."""

    verdict: Literal["argmaxable", "unargmaxable", "undecided"]
    mode: Literal["top-k", "sign"]
    labels: list[str]
    certificate: CertificateInfo
    nearest: NearestInfo | None


class SaveResponse(BaseModel):
    """What was saved, and how to do the same elsewhere."""

    saved: bool
    file: str
    kept: str | None = Field(description="where the former rule is now")
    rule: RuleInfo | None
    command: str
    python: str
